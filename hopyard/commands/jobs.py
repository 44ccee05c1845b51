"""submit, ps, show, why, cancel, priority, hold, release."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Group, RenderableType
from rich.text import Text

from hopyard.actions import completion
from hopyard.actions.submit import in_this_folder, read_job, show_outcomes, submit_all
from hopyard.api.client import ApiRefusal, Client
from hopyard.api.connect import timed
from hopyard.commands.changing import change
from hopyard.commands.options import (
    Api,
    AsJson,
    JobArgument,
    ListColumns,
    Out,
    Quiet,
    Watching,
    chosen,
    file_path,
    filled,
    one_or_more,
)
from hopyard.failures import Invalid
from hopyard.local.credentials import this_user
from hopyard.show.columns import Listing
from hopyard.show.jobs import DEFAULT, job_columns, job_table
from hopyard.show.runs import runs_listing
from hopyard.show.tables import facts_table, services_away
from hopyard.show.terminal import say, show, show_ids
from hopyard.show.times import Times
from hopyard.show.units import number as shown
from hopyard.show.why import preemptions_text, why_text
from schemas.ids import JobId
from schemas.jobs import Priority
from schemas.overview import RunView
from schemas.views import JobPage, JobSorting, JobView, WhyView
from shared.domain.idempotency import key_fault
from shared.domain.states import ENDED, JobState

NOT_FOUND = 404


def submit(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE",
            parser=file_path,
            help="A job file, YAML or JSON; - is stdin.",
            show_default=False,
        ),
    ],
    *,
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            callback=filled,
            help="Idempotency key: the same key again gives the same job, not a second one.",
            metavar="TEXT",
        ),
    ] = None,
    hold: Annotated[
        bool, typer.Option("--hold", help="On hold from the start: no GPUs before `hopyard release JOB`.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the jobs have ended; the exit code says how.")
    ] = False,
    with_logs: Annotated[
        bool, typer.Option("--logs", help="With --wait: print their output; with -q or --json, on stderr.")
    ] = False,
    quiet: Quiet = False,
    api: Api = None,
    as_json: AsJson = False,
) -> None:
    """Submit jobs.

    Prints the ids of the jobs. Every file is read before any job is sent: if
    one is not valid, none is submitted, and its line and field are printed. If
    the cluster refuses a job, the others are submitted; the exit code is 1.

    A job with a command runs in the folder that it names, else in this one. It
    gets none of this shell's environment.

    With --wait the exit code says how the job ended: 0 completed, 4 failed,
    5 cancelled, 6 rejected; of several jobs the lowest that is not 0. Ctrl-C
    leaves them running.

    $ hopyard submit resnet.yaml
    $ hopyard submit train.yaml --wait --logs && hopyard submit next.yaml
    $ hopyard submit resnet.yaml --key nightly-2026-11-20
    $ job=$(hopyard submit --hold -q later.yaml); sleep 2h; hopyard release $job
    $ for lr in 0.1 0.2; do sed s/LR/$lr/ job.yaml | hopyard submit -q -; done
    $ hopyard submit sweep/*.yaml --json
    """
    if key is not None and len(files) > 1:
        raise Invalid("--key is for one job; submit these one by one")
    if key is not None and (fault := key_fault(key)):
        raise Invalid(f"--key {fault}")
    if with_logs and not wait:
        raise Invalid("--logs needs --wait; `hopyard logs JOB -f` follows a job that is already submitted")
    jobs = in_this_folder([(str(file), read_job(file)) for file in files])
    if wait:
        from hopyard.actions.wait import Wait, printer  # noqa: PLC0415 - brings an event loop

        show_lines = printer(with_id=len(files) > 1, beside=quiet or as_json) if with_logs else None
        Wait(quiet=quiet, as_json=as_json, show=show_lines).run(api, jobs, key, hold=hold)
        return
    outcomes = change(api, lambda client: submit_all(client, jobs, key, hold=hold))
    show_outcomes(outcomes, quiet=quiet, as_json=as_json)


def ps(
    *,
    state: Annotated[
        str | None,
        typer.Option(
            "--state",
            metavar="STATE,…",
            help="Only jobs in these states.",
            autocompletion=completion.states,
        ),
    ] = None,
    mine: Annotated[bool, typer.Option("--mine", help="Only jobs that you submitted.")] = False,
    user: Annotated[
        str | None, typer.Option("--user", callback=filled, help="Only jobs of this user.")
    ] = None,
    project: Annotated[
        str | None, typer.Option("--project", callback=filled, help="Only jobs of this project.")
    ] = None,
    sort: Annotated[
        JobSorting,
        typer.Option("--sort", metavar="ORDER", help=f"One of {', '.join(JobSorting)}."),
    ] = JobSorting.ACTIVE,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, help="At most N jobs.")] = 200,
    after: Annotated[
        str | None,
        typer.Option(
            "--after",
            metavar="PAGE",
            callback=filled,
            help="Continue after a page: the value in its last line.",
        ),
    ] = None,
    columns: ListColumns = None,
    quiet: Quiet = False,
    watching: Watching = False,
    api: Api = None,
    as_json: AsJson = False,
    out: Out = None,
) -> None:
    """List jobs: first those that have not ended, newest first.

    States: submitted, profiled, queued, running, preempted, completed,
    failed, cancelled, rejected.

    Columns: job, state, gpus, done, started, ended, waited, note (where it
    runs, why it failed, or on hold), submitted, on, name, project, user, model,
    priority, restarts, lr, reason.

    $ hopyard ps --mine --state queued,running
    $ hopyard ps -o job,user,submitted --sort newest
    $ hopyard ps --state queued -q | xargs -n 1 hopyard cancel
    $ hopyard ps --json | jq '.jobs[].job_id'
    """
    states = one_or_more("--state", state, tuple(JobState))

    async def look(client: Client) -> JobPage:
        wanted_by = await _me(client) if mine else user
        return await client.jobs(
            states=states, project=project, user=wanted_by, sort=sort, after=after, limit=limit
        )

    def picture(page: JobPage, times: Times) -> Listing[JobView]:
        there = job_columns(times)
        return Listing(chosen(columns, there, DEFAULT), page.jobs, whole=columns is not None)

    chosen(columns, job_columns(Times(None)), DEFAULT)
    if watching:
        from hopyard.actions.watch import watch  # noqa: PLC0415 - brings an event loop and moving pictures

        watch(api, look, picture, as_json=as_json)
        return
    page, clock = timed(api, look)
    if quiet and not as_json:
        show_ids(job.job_id for job in page.jobs)
    elif not (page.jobs or as_json or out):
        say("no jobs")
    else:
        show(page, picture(page, Times(clock)), as_json=as_json, out=out, times=Times(clock))
    if page.next and not as_json:
        say(f"there are more: repeat the command with --after {page.next}")


def show_job(job: JobArgument, *, api: Api = None, as_json: AsJson = False, out: Out = None) -> None:
    """Show one job: where it runs, how far it is, how long it waited, why it failed.

    Then a line for each of its runs: when, on which GPUs, from which sample to
    which, its throughput beside the estimate, and why it ended.

    $ hopyard show job-17
    $ hopyard show job-17 --json | jq '.runs[].measured_throughput'
    """

    async def look(client: Client) -> tuple[JobView, tuple[RunView, ...]]:
        view = await client.job(JobId(job))
        return view, await runs_of(client, view.job_id)

    (view, runs), clock = timed(api, look)
    times = Times(clock)
    besides: list[RenderableType] = [Text(), runs_listing(runs, times)] if runs else []
    besides += [Text(), Text(preemptions_text(view.preemptions, times.moment))] if view.preemptions else []
    answer = msgspec.to_builtins(view) | {"runs": msgspec.to_builtins(runs)}
    show(answer, Group(job_table(view, times), *besides), as_json=as_json, out=out, times=times)


async def runs_of(client: Client, job_id: JobId) -> tuple[RunView, ...]:
    """The job's runs; none if the monitor does not know the job yet."""
    try:
        return (await client.runs(job_id)).runs
    except ApiRefusal as refusal:
        if refusal.problem.status != NOT_FOUND:
            raise
        return ()


def why(job: JobArgument, *, api: Api = None, as_json: AsJson = False, out: Out = None) -> None:
    """Explain why a job waits, or why it runs where it does.

    The reason; its place in the queue; which jobs hold the GPUs that it could
    use, and why they came first; the plan that decided; where it ran before,
    and for which jobs it was stopped. While a service is away, without which
    no job begins, that is said too.

    $ hopyard why job-17
    $ hopyard why job-17 --json | jq '.holders[].job_id'
    """

    async def look(client: Client) -> tuple[WhyView, list[str]]:
        view = await client.why(JobId(job))
        if view.state == JobState.RUNNING or view.state in ENDED:
            return view, []
        return view, services_away((await client.status()).services)

    (view, away), clock = timed(api, look)
    times = Times(clock)
    show(view, Text(why_text(view, times.moment)), as_json=as_json, out=out, times=times)
    for one in () if as_json else away:
        say(f"{one}, and the job may wait for it: `hopyard diag` says more")


def cancel(job: JobArgument, *, api: Api = None, as_json: AsJson = False) -> None:
    """Cancel a job. If it runs, it is stopped.

    $ hopyard cancel job-17
    """
    cancelled = change(api, lambda client: client.cancel(JobId(job)))
    show(cancelled, facts_table({"job": cancelled.job_id, "state": "cancelled"}), as_json=as_json)


def priority(
    job: JobArgument,
    number: Annotated[
        float,
        typer.Argument(metavar="NUMBER", help="Above 0, at most 1000; a job file's default is 1."),
    ],
    *,
    api: Api = None,
    as_json: AsJson = False,
) -> None:
    """Change the priority of a job that has not ended.

    The next plan counts with it. Whether it moves running jobs is up to the
    policy; a policy that does not weigh jobs ignores it.

    $ hopyard priority job-17 4
    """
    try:
        msgspec.convert(number, Priority)
    except msgspec.ValidationError:
        raise Invalid(f"NUMBER {number:g} is no priority: it is above 0 and at most 1000") from None
    changed = change(api, lambda client: client.set_priority(JobId(job), number))
    show(
        changed,
        facts_table({"job": changed.job_id, "priority": shown(changed.priority)}),
        as_json=as_json,
    )


def hold(job: JobArgument, *, api: Api = None, as_json: AsJson = False) -> None:
    """Give a job no GPUs until it is released.

    If it runs, the next plan for all jobs stops it, with a checkpoint. It is
    not measured either, and its waiting time stands still.

    $ hopyard hold job-17
    $ hopyard ps --mine --state queued -q | xargs -n 1 hopyard hold
    """
    held = change(api, lambda client: client.hold(JobId(job)))
    show(held, facts_table({"job": held.job_id, "on hold": "yes"}), as_json=as_json)


def release(job: JobArgument, *, api: Api = None, as_json: AsJson = False) -> None:
    """Release a job from its hold, so that it may get GPUs again.

    $ hopyard release job-17
    """
    released = change(api, lambda client: client.release(JobId(job)))
    show(released, facts_table({"job": released.job_id, "on hold": "no"}), as_json=as_json)


async def _me(client: Client) -> str:
    """The token's user; without one, the user who runs this command."""
    return (client.has_token and (await client.me()).user) or this_user()


def register(app: typer.Typer) -> None:
    app.command("submit")(submit)
    app.command("ps")(ps)
    app.command("show")(show_job)
    app.command("why")(why)
    app.command("cancel")(cancel)
    app.command("priority")(priority)
    app.command("hold")(hold)
    app.command("release")(release)
