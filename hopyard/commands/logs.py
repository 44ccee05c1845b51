"""logs: what a job prints."""

from typing import Annotated

import typer

from hopyard.actions import completion
from hopyard.api.client import Client
from hopyard.api.connect import call
from hopyard.commands.options import Api, named
from hopyard.failures import Invalid
from hopyard.show.output import show_output
from hopyard.show.terminal import show_line
from schemas.ids import JobId

NEWEST = 1_000
NEWEST_MAX = 10_000
NO_JOB = (
    "JOB is missing: `hopyard logs JOB` prints a job's output, `hopyard events` what happened in the cluster"
)


def logs(
    job: Annotated[
        str | None,
        typer.Argument(
            metavar="JOB",
            callback=named,
            help="Id of the job.",
            show_default=False,
            autocompletion=completion.jobs,
        ),
    ] = None,
    *,
    tail: Annotated[
        int, typer.Option("--tail", "-n", min=0, max=NEWEST_MAX, help="Only the newest N lines.")
    ] = NEWEST,
    rank: Annotated[
        int | None, typer.Option("--rank", min=0, help="Only the process of this rank.", show_default=False)
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing until the job has ended.")
    ] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Leave out node and rank before each line.")] = False,
    api: Api = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON document a line.")] = False,
) -> None:
    """Print the output of a job's processes, from every node on which they ran.

    Agents keep the newest lines of each process. What happened to the job is
    in `hopyard events JOB`.

    $ hopyard logs job-17
    $ hopyard logs job-17 -f --rank 0 --plain
    """
    if job is None:
        raise Invalid(NO_JOB)

    async def print_all(client: Client) -> None:
        async for line in client.output(JobId(job), newest=tail, rank=rank, follow=follow):
            if as_json:
                show_line(line)
            else:
                show_output(line, plain=plain)

    call(api, print_all)


def register(app: typer.Typer) -> None:
    app.command("logs")(logs)
