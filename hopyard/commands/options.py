"""Options that several commands share, worded once."""

import os
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from hopyard.failures import Invalid


def _url(text: str | None) -> str | None:
    """Raises Invalid for what is no address of a web server."""
    if not text:
        return text
    try:
        parts = urlsplit(text)
        meant = parts.scheme in {"http", "https"} and parts.hostname
    except ValueError:
        meant = False
    if not meant:
        raise Invalid(f"{text} is no URL; one is http://127.0.0.1:8080")
    return text


def located(policy: str) -> str:
    """A policy named by its file, with that file's whole path: services may run in another folder."""
    file, colon, rest = policy.partition(".py:")
    return f"{Path(file).expanduser().absolute()}{colon}{rest}" if colon else policy


def writable(file: Path | None) -> Path | None:
    """Raises Invalid for a file in a folder that is not there: now, and not when the work is done."""
    if file is not None and not os.access(file.parent, os.X_OK):
        raise Invalid(f"{file}: there is no folder {file.parent}")
    return file


Api = Annotated[
    str | None,
    typer.Option(
        "--api",
        envvar="HOPYARD_API_URL",
        metavar="URL",
        callback=_url,
        help="Where the API is. Default: your own stack, of this folder or else the only one.",
        show_default=False,
    ),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print JSON instead of a table; errors are JSON too, on stderr.")
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="FILE",
        dir_okay=False,
        callback=writable,
        help="Write the JSON into this file as well.",
    ),
]
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="Id of the job.")]
Scenario = Annotated[
    str, typer.Option("--scenario", metavar="NAME|FILE", help="A scenario; `hopyard scenarios` lists them.")
]
Policy = Annotated[
    str | None,
    typer.Option(
        "--policy",
        metavar="NAME[+OPTION=VALUE…]",
        callback=lambda policy: policy and located(policy),
        help="Scheduling policy; one of your own as FILE.py:CLASS.",
        show_default="the scenario's",
    ),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Root of all randomness.")]
Trace = Annotated[
    Path | None,
    typer.Option(
        "--trace", exists=True, dir_okay=False, help="Take the arrivals from this trace file instead."
    ),
]
Columns = Annotated[
    str | None,
    typer.Option(
        "--columns",
        metavar="WHAT=COLUMN,…",
        help="Of a --trace of any other form: its columns for submit, gpus and perhaps seconds, model, user; "
        "COLUMN:us for microseconds.",
    ),
]
Speed = Annotated[float, typer.Option("--speed", min=0.001, max=100_000, help="Cluster seconds per second.")]
