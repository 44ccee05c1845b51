"""events: what happened, a line a fact."""

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Annotated

import typer

from hopyard.actions import completion
from hopyard.api.client import Client, LoggedEvent
from hopyard.api.connect import call
from hopyard.commands.options import Api, filled, named
from hopyard.failures import Invalid
from hopyard.show.events import fact_line, plain_line
from hopyard.show.terminal import put_line, say, show_line
from hopyard.show.times import Times, dated
from schemas.codec import Malformed
from schemas.ids import JobId
from schemas.views import ClockView

TAIL_MAX = 10_000
UNKNOWN_SPEED = 0.0
"""no wall clock has it"""
SINCE = (
    "how long ago is written 90s, 30m, 2h or 1d; a date, on a cluster with the wall's clock, 2026-11-22T09:15"
)


def events(
    job: Annotated[
        str | None,
        typer.Argument(
            metavar="JOB",
            callback=named,
            help="Only facts about this job.",
            show_default=False,
            autocompletion=completion.jobs,
        ),
    ] = None,
    *,
    tail: Annotated[
        int | None, typer.Option("--tail", "-n", min=0, max=TAIL_MAX, help="Only the newest N facts.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="TIME", callback=filled, help="Begin this long ago (30m, 2h), or at a date."
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing as facts come in.")] = False,
    after: Annotated[int, typer.Option("--after", min=0, help="Begin after this sequence number.")] = 0,
    api: Api = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document a line.")] = False,
) -> None:
    """Print the log of the cluster: what happened, a line a fact, in order.

    A line says when, which job, node or plan, and what happened. What a job
    itself prints is in `hopyard logs JOB`. Where the cluster runs at the
    speed of the wall clock, times have a zone, and JSON has dates (`at_iso`).
    With --follow the command outlasts restarts of the stack; if that is away for
    ten minutes, the command ends with code 3.

    $ hopyard events --tail 20
    $ hopyard events job-17 --since 2h
    $ hopyard events --follow --json | jq '.event.gap // empty'
    """

    async def print_all(client: Client, lines: Callable[..., AsyncIterator[LoggedEvent]]) -> None:
        first = None if since is None else await _first(client, since)
        if job is not None and follow:
            await _known(client, job)
        found = False
        async for line in lines(after=after, job=job, tail=tail, since=first):
            found = True
            if as_json:
                show_line(dated({"seq": line.seq, "event": line.fields()}, Times(client.clock)))
            else:
                put_line(readable(line, Times(client.clock)))
        if job is not None and not found:
            await client.job(JobId(job))  # refused if there is none
        if (note := Times(client.clock).note()) and not as_json:
            say(note)

    if follow:
        from hopyard.actions.follow import followed, run  # noqa: PLC0415 - brings an event loop

        run(api, lambda client: print_all(client, partial(followed, client, say)))
    else:
        call(api, lambda client: print_all(client, client.events))


def readable(line: LoggedEvent, times: Times) -> str:
    try:
        return fact_line(line.fact(), times)
    except Malformed:  # of a later version
        return plain_line(line.fields(), times)


async def _known(client: Client, job: str) -> None:
    """Raises ApiRefusal if there is no such job. One that ended long ago is known by its facts alone."""
    newest = [line async for line in client.events(job=job, tail=1)]
    if not newest:
        await client.job(JobId(job))


async def _first(client: Client, since: str) -> float:
    """Raises Invalid."""
    status = await client.status()
    clock = client.clock or ClockView(now=status.at, origin=0.0, speed=UNKNOWN_SPEED)
    found = Times(clock).instant(since)
    if found is None:
        raise Invalid(f"--since {since}: {SINCE}")
    return found


def register(app: typer.Typer) -> None:
    app.command("events")(events)
