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
    help="Facts that a service passes over since it ended by them.", no_args_is_help=True
)

Services = Annotated[
    list[str] | None,
    typer.Argument(metavar="SERVICE", help="Left out: all but agents. An agent is agent-NODE."),
]


class Quarantined(Message, frozen=True, kw_only=True):
    services: dict[str, tuple[Death, ...]]


class Released(Message, frozen=True, kw_only=True):
    service: str
    seq: int


@quarantine.command("list")
def list_quarantined(services: Services = None, *, as_json: AsJson = False) -> None:
    """Facts by which a service ended twice, with their sequence in the log and the error.

    $ hopyard quarantine list
    $ hopyard quarantine list agent-gpu-1
    """
    from hopyard.actions.quarantined import found_of  # noqa: PLC0415 - brings NATS

    found = over_nats(lambda connection: found_of(connection, services or ()))
    texts = {name: "; ".join(one.text for one in deaths) for name, deaths in found.items()}
    show(Quarantined(services=found), facts_table(texts or {"quarantine": "empty"}), as_json=as_json)


@quarantine.command("release")
def release_fact(
    service: Annotated[str, typer.Argument(metavar="SERVICE", help="planner, say, or agent-NODE.")],
    seq: Annotated[int, typer.Argument(metavar="SEQUENCE", min=1, help="Of the fact in the log.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Have a service handle a fact after all, in its place, at the next start of the service.

    That start replays the whole log, so the log must have its beginning.

    $ hopyard quarantine release placer 4711
    """
    from hopyard.actions.quarantined import released  # noqa: PLC0415 - brings NATS

    if not over_nats(lambda connection: released(connection, service, seq)):
        raise Failure(f"fact {seq} is in no quarantine of {service}")
    text = {"released": f"{seq}; {service} handles it at its next start"}
    show(Released(service=service, seq=seq), facts_table(text), as_json=as_json)


def register(app: typer.Typer) -> None:
    app.add_typer(quarantine, name="quarantine")
