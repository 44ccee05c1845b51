"""submit, ps, show, why, cancel."""

import uuid
from pathlib import Path
from typing import Annotated

import typer

from hopyard.api.connect import call
from hopyard.commands.changing import change
from hopyard.commands.options import Api, AsJson, JobArgument
from hopyard.show.tables import facts_table, job_table, jobs_table, why_table
from hopyard.show.terminal import say, show
from schemas.ids import JobId
from schemas.jobs import JobFile
from shared.domain.demand import InvalidJob, job_spec
from shared.domain.states import JobState


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
    """Show one job: where it runs, how far it is, how long it waited.

    $ hopyard show job-17
    """
    view = call(api, lambda client: client.job(JobId(job)))
    show(view, job_table(view), as_json=as_json)


def why(job: JobArgument, *, api: Api = None, as_json: AsJson = False) -> None:
    """Say why a job is not running: one reason, who holds what it wanted, and how long that may last.

    $ hopyard why job-17
    """
    view = call(api, lambda client: client.why(JobId(job)))
    show(view, why_table(view), as_json=as_json)


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
