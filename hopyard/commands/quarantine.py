"""quarantine list, quarantine release."""

from typing import Annotated

import typer

from hopyard.api.ask import over_nats
from hopyard.commands.options import AsJson
from hopyard.failures import Failure
from hopyard.show.tables import facts_table
from hopyard.show.terminal import show
from schemas.base import Message
from schemas.quarantine import Death

quarantine = typer.Typer(
    help="List and release facts that a service skips because they made it fail.", no_args_is_help=True
)

Services = Annotated[
    list[str] | None,
    typer.Argument(metavar="SERVICE", help="A service, or agent-NODE. Default: all services, no agents."),
]


class Quarantined(Message, frozen=True, kw_only=True):
    services: dict[str, tuple[Death, ...]]


class Released(Message, frozen=True, kw_only=True):
    service: str
    seq: int


@quarantine.command("list")
def list_quarantined(services: Services = None, *, as_json: AsJson = False) -> None:
    """List the facts that made a service fail twice, with their sequence numbers and errors.

    $ hopyard quarantine list
    $ hopyard quarantine list agent-gpu-1
    """
    from hopyard.actions.quarantined import found_of  # noqa: PLC0415 - brings NATS

    found = over_nats(lambda connection: found_of(connection, services or ()))
    texts = {name: "; ".join(one.text for one in deaths) for name, deaths in found.items()}
    show(Quarantined(services=found), facts_table(texts or {"quarantine": "empty"}), as_json=as_json)


@quarantine.command("release")
def release_fact(
    service: Annotated[str, typer.Argument(metavar="SERVICE", help="A service, as planner, or agent-NODE.")],
    seq: Annotated[int, typer.Argument(metavar="SEQUENCE", min=1, help="Sequence number of the fact.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Have a service handle a fact after all, in its place in the log, when the service next starts.

    That start replays the log from its beginning, so nothing of it may be missing.

    $ hopyard quarantine release placer 4711
    """
    from hopyard.actions.quarantined import released  # noqa: PLC0415 - brings NATS

    if not over_nats(lambda connection: released(connection, service, seq)):
        raise Failure(f"fact {seq} is in no quarantine of {service}")
    text = {"released": f"{seq}; {service} handles it at its next start"}
    show(Released(service=service, seq=seq), facts_table(text), as_json=as_json)


def register(app: typer.Typer) -> None:
    app.add_typer(quarantine, name="quarantine")
