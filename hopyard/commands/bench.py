"""bench."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from hopyard.commands.about import versions
from hopyard.folder import empty_folder
from hopyard.options import JsonFile
from hopyard.terminal import say, show_made
from schemas.settings import Settings


class Subject(StrEnum):
    """What there is to measure."""

    LATENCY = "latency"
    SUBMISSIONS = "submissions"
    DISPATCH = "dispatch"
    RESTART = "restart"
    SIMULATION = "simulation"


def bench(
    *,
    subjects: Annotated[
        list[Subject] | None,
        typer.Argument(metavar="[FIGURE]...", help=f"Of {', '.join(Subject)}. Default: all."),
    ] = None,
    json_file: JsonFile = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="DIR",
            file_okay=False,
            help="Write below this folder, on the disk that shall be measured. Default: a temporary one.",
        ),
    ] = None,
    scale: Annotated[
        float,
        typer.Option("--scale", min=0.001, max=100, help="Times as many jobs and facts. Not the simulation."),
    ] = 1.0,
) -> None:
    """Measure what the system does on this machine: real processes, a real disk, a few minutes.

    latency: from a job's submission to running, on an idle cluster.
    submissions: jobs a second through the HTTP API, each on the disk.
    dispatch: facts a second from one process to the next.
    restart: each service from kill -9 to ready, with 10,000 jobs in the log.
    simulation: the scenario hops-64 from the first job to the last.

    $ hopyard bench
    $ hopyard bench latency submissions --json figures.json
    """
    from hopyard.bench.suite import report  # noqa: PLC0415 - brings every service
    from hopyard.bench.tables import report_table  # noqa: PLC0415 - as above
    from shared.runtime.logs import configure_logs  # noqa: PLC0415 - as above

    configure_logs(Settings(log_level="error", log_format="console"))
    with empty_folder(data) as folder:
        made = report(subjects or list(Subject), versions(), folder, scale, say)
    show_made(made, report_table(made), json_file)


def register(app: typer.Typer) -> None:
    app.command("bench")(bench)
