"""How a library is installed into the environment that runs this program."""

import shlex
import shutil
import sys
from importlib.util import find_spec


def not_there(library: str, packages: str, extra: str = "") -> str:
    """What to say of a library that is missing. `extra`: the extra of hopyard that has the packages."""
    of = f" (extra {extra})" if extra else ""
    return f"{library} is not installed{of}: {_command()} {packages}"


def _command() -> str:
    python = shlex.quote(sys.executable)
    pip = f"{python} -m pip install"
    if find_spec("pip"):
        return pip
    return f"uv pip install --python {python}" if shutil.which("uv") else f"{python} -m ensurepip && {pip}"
