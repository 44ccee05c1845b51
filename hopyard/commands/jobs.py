"""submit, ps, show, why, cancel."""

import uuid
from collections.abc import Awaitable
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.console import Group
from rich.text import Text

from hopyard.api.client import Client
from hopyard.api.connect import call
from hopyard.commands.changing import change
from hopyard.commands.options import Api, AsJson, JobArgument
from hopyard.show.tables import facts_table, job_table, jobs_table
from hopyard.show.terminal import say, show
from hopyard.show.why import Moment, cluster_moment, moves_text, why_text
from schemas.ids import JobId
from schemas.jobs import JobFile
from shared.domain.demand import InvalidJob, job_spec
from shared.domain.states import JobState

T = TypeVar("T")


def submit(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="The job, as YAML or JSON.")],
    *,
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            help="Idempotency key: the same key again gives the same job, and no other.",
            metavar="TEXT",
        ),
    ] = None,
    api: Api = None,
    as_json: AsJson = False,
) -> None:
    """Submit a job.

    Prints the job's id. A file that is not valid is refused before it is
    sent, with its line and field.

    $ hopyard submit resnet.yaml
    $ hopyard submit resnet.yaml --key nightly-2026-11-20
    """
    job = _read(file)
    submitted = change(api, lambda client: client.submit(job, key or uuid.uuid4().hex))
    if not submitted.created:
        say(f"the key was used before, for job {submitted.job_id}")
    show(submitted, facts_table({"job": submitted.job_id}), as_json=as_json)


def ps(
    *,
    state: Annotated[
        JobState | None, typer.Option("--state", metavar="STATE", help="Only jobs in this state.")
    ] = None,
    project: Annotated[str | None, typer.Option("--project", help="Only jobs of this project.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, help="At most so many.")] = 200,
    after: Annotated[str | None, typer.Option("--after", help="Go on where a page ended.")] = None,
    api: Api = None,
    as_json: AsJson = False,
) -> None:
    """List jobs.

    States: submitted, profiled, queued, running, preempted, completed,
    failed, cancelled, rejected.

    $ hopyard ps --state running
    $ hopyard ps --json | jq '.jobs[].job_id'
    """
    page = call(
        api,
        lambda client: client.jobs(
            states=(state,) if state else (), project=project, after=after, limit=limit
        ),
    )
    show(page, jobs_table(page), as_json=as_json)
    if page.next and not as_json:
        say(f"there are more: hopyard ps --after {page.next}")


def show_job(job: JobArgument, *, api: Api = None, as_json: AsJson = False) -> None:
    """Show one job: where it runs, how far it is, how long it waited, where it ran before.

    $ hopyard show job-17
    """
    view, moment = call(api, lambda client: _with_moment(client, client.job(JobId(job))))
    moves = Text(moves_text(view.moves, moment)) if view.moves else Text()
    show(view, Group(job_table(view), moves), as_json=as_json)


def why(job: JobArgument, *, api: Api = None, as_json: AsJson = False) -> None:
    """Say why a job is not running, or runs where it does.

    One reason; its place in the queue; who holds what it could use, and what
    put them first; which plan decided it; where it ran before, and for whom
    it was stopped.

    $ hopyard why job-17
    $ hopyard why job-17 --json | jq '.holders[].job_id'
    """
    view, moment = call(api, lambda client: _with_moment(client, client.why(JobId(job))))
    show(view, Text(why_text(view, moment)), as_json=as_json)


async def _with_moment(client: Client, answer: Awaitable[T]) -> tuple[T, Moment]:
    """The answer, and how instants are said at that time."""
    got = await answer
    return got, cluster_moment(client.clock.now if client.clock else None)


def cancel(job: JobArgument, *, api: Api = None, as_json: AsJson = False) -> None:
    """Withdraw a job. If it runs, it is stopped.

    $ hopyard cancel job-17
    """
    cancelled = change(api, lambda client: client.cancel(JobId(job)))
    show(cancelled, facts_table({"job": cancelled.job_id, "state": "cancelled"}), as_json=as_json)


def _read(file: Path) -> JobFile:
    """A job that makes sense, as far as one can say without the cluster. Raises InvalidFile."""
    from shared.runtime.files import fault, read_file  # noqa: PLC0415 - brings the YAML parser

    job = read_file(file, JobFile)
    try:
        job_spec(job)
    except InvalidJob as error:
        raise fault(file, error.field, error.reason) from None
    return job


def register(app: typer.Typer) -> None:
    app.command("submit")(submit)
    app.command("ps")(ps)
    app.command("show")(show_job)
    app.command("why")(why)
    app.command("cancel")(cancel)
