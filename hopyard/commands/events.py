"""events: what happened, a line a fact."""

from typing import Annotated

import typer

from hopyard.api.client import Client, LoggedEvent
from hopyard.api.connect import call
from hopyard.commands.options import Api
from hopyard.failures import Invalid
from hopyard.show.events import fact_line, plain_line
from hopyard.show.terminal import console, show_line
from hopyard.show.units import seconds_in
from schemas.codec import Malformed

TAIL_MAX = 10_000


def events(
    job: Annotated[
        str | None, typer.Argument(metavar="[JOB]", help="Only facts about this job.", show_default=False)
    ] = None,
    *,
    tail: Annotated[
        int | None, typer.Option("--tail", "-n", min=0, max=TAIL_MAX, help="Only the newest so many.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="From this long ago on (30m, 2h), in cluster time."),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as facts come in.")] = False,
    after: Annotated[int, typer.Option("--after", min=0, help="Begin after this sequence number.")] = 0,
    api: Api = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON document a line.")] = False,
) -> None:
    """Print what happened, in the order in which it counts.

    A line: cluster time, the job, node or plan it is about, what happened. What a
    job itself prints is in `hopyard logs JOB`.

    $ hopyard events --tail 20
    $ hopyard events job-17 --since 2h
    $ hopyard events --follow --json | jq 'select(.event.fact == "plan.published").event.gap'
    """
    ago_s = None if since is None else _ago_s(since)

    async def print_all(client: Client) -> None:
        first = None if ago_s is None else (await client.status()).at - ago_s
        async for line in client.events(after=after, job=job, follow=follow, tail=tail, since=first):
            if as_json:
                show_line(line)
            else:
                console().print(readable(line), markup=False, soft_wrap=True)

    call(api, print_all)


def readable(line: LoggedEvent) -> str:
    try:
        return fact_line(line.fact())
    except Malformed:  # of a later version
        return plain_line(line.fields())


def _ago_s(text: str) -> float:
    seconds = seconds_in(text)
    if seconds is None:
        raise Invalid(f"--since {text}: how long ago is written 90s, 30m, 2h or 1d")
    return seconds


def register(app: typer.Typer) -> None:
    app.command("events")(events)
