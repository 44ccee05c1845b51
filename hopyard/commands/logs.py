"""logs: the event log, as lines."""

from collections.abc import Mapping
from typing import Annotated

import typer

from hopyard.api.client import Client, LoggedEvent
from hopyard.api.connect import call
from hopyard.commands.options import Api
from hopyard.show.terminal import console, show_line

HEAD = frozenset({"at", "fact"})


def logs(
    *,
    job: Annotated[
        str | None, typer.Option("--job", metavar="JOB", help="Only facts about this job.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as facts come in.")] = False,
    after: Annotated[int, typer.Option("--after", min=0, help="Begin after this sequence number.")] = 0,
    api: Api = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON document a line.")] = False,
) -> None:
    """Print the event log: everything that happened, in the order in which it counts.

    A line: sequence number, cluster time in seconds, fact, its fields.

    $ hopyard logs --job job-17
    $ hopyard logs --follow --json | jq 'select(.event.fact == "plan.published").event.gap'
    """

    async def print_all(client: Client) -> None:
        async for line in client.events(after=after, job=job, follow=follow):
            if as_json:
                show_line(line)
            else:
                console().print(readable(line), markup=False, soft_wrap=True)

    call(api, print_all)


def readable(line: LoggedEvent) -> str:
    fields = line.fields()
    rest = "  ".join(f"{name}={_short(value)}" for name, value in fields.items() if name not in HEAD)
    return f"{line.seq:>7}  {float(str(fields['at'])):>10.1f}  {fields['fact']!s:<22}  {rest}"


def _short(value: object) -> str:
    """Numbers and names as they are; of larger things only how many parts they have."""
    match value:
        case float():
            return f"{value:g}"
        case Mapping() | list() if len(value) > 2 or any(map(_nested, _parts(value))):  # noqa: PLR2004
            return f"<{len(value)}>"
        case Mapping():
            return ",".join(f"{name}:{part}" for name, part in value.items()) or "-"
        case list():
            return ",".join(map(str, value)) or "-"
        case _:
            return str(value)


def _parts(value: Mapping[object, object] | list[object]) -> list[object]:
    return list(value.values()) if isinstance(value, Mapping) else value


def _nested(value: object) -> bool:
    return isinstance(value, Mapping | list)


def register(app: typer.Typer) -> None:
    app.command("logs")(logs)
