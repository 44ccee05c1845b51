"""Options that several commands share, worded once."""

from pathlib import Path
from typing import Annotated

import typer

Api = Annotated[
    str | None,
    typer.Option(
        "--api",
        envvar="HOPYARD_API_URL",
        metavar="URL",
        help="Where the API is. Default: the stack that `hopyard up` started here, else port 8080.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="Id of the job.")]
Scenario = Annotated[
    str, typer.Option("--scenario", metavar="NAME|FILE", help="A scenario; `hopyard scenarios` lists them.")
]
Policy = Annotated[
    str | None,
    typer.Option("--policy", metavar="NAME", help="Scheduling policy.", show_default="the scenario's"),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Root of all randomness.")]
Trace = Annotated[
    Path | None,
    typer.Option(
        "--trace", exists=True, dir_okay=False, help="Take the arrivals from this trace file instead."
    ),
]
Speed = Annotated[float, typer.Option("--speed", min=0.001, max=100_000, help="Cluster seconds per second.")]
JsonFile = Annotated[
    Path | None,
    typer.Option(
        "--json",
        dir_okay=False,
        allow_dash=True,
        help="Write the result here; - prints it instead of the table.",
    ),
]
