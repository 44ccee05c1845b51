"""The folder for the state of an account's programs, by the XDG base directories."""

import os
from collections.abc import Mapping
from pathlib import Path


def state_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Raises FileNotFoundError for an account without a home, such as that of a service or a container."""
    if named := environ.get("XDG_STATE_HOME"):
        return Path(named)
    try:
        return Path.home() / ".local/state"
    except RuntimeError:
        raise FileNotFoundError(
            "this account has no home folder; XDG_STATE_HOME names one for the state of its programs"
        ) from None
