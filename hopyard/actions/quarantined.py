"""Looks up and releases facts in quarantine, in the state bucket of a stack."""

from collections.abc import Sequence

from hopyard.actions.archived import archived
from hopyard.failures import Failure, Invalid
from schemas.quarantine import Death, key_of
from schemas.subjects import AGENT, FACTS_STREAM, state_subject
from shared.runtime.bus.jetstream.connection import Connection, unavailable
from shared.runtime.bus.jetstream.state import JetStreamState
from shared.runtime.bus.jetstream.streams import STATE_STREAM
from shared.runtime.process.reports import NAMES
from shared.runtime.shell.quarantine import quarantine_of, release


class StateOf(JetStreamState):
    """Connects to the state bucket alone."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection


async def found_of(connection: Connection, services: Sequence[str]) -> dict[str, tuple[Death, ...]]:
    """The quarantined facts by service or agent; no names: of all. Raises Invalid, Unavailable."""
    state = StateOf(connection)
    for name in services:
        _check(name)
    names = services or (*NAMES, *await _agents(connection))
    found = {name: (await quarantine_of(state, name)).in_force for name in names}
    return {name: deaths for name, deaths in found.items() if deaths}


def _check(service: str) -> None:
    """Raises Invalid for a name that neither a service nor an agent has."""
    if service not in NAMES and not service.startswith(f"{AGENT}-"):
        raise Invalid(f"there is no service {service}; there are {', '.join(NAMES)}, {AGENT}-NODE")


async def _agents(connection: Connection) -> list[str]:
    """The agents that have a quarantine, even if it is empty."""
    with unavailable("agents"):
        subjects = state_subject(key_of(f"{AGENT}-*"))
        info = await connection.js.stream_info(STATE_STREAM, subjects_filter=subjects)
    return sorted(f"{AGENT}-{subject.split('.')[-2]}" for subject in info.state.subjects or {})


async def released(connection: Connection, service: str, seq: int) -> bool:
    """Release a fact; false if the service has not quarantined it.

    Raises Invalid; Failure if the beginning of the log is lost.
    """
    _check(service)
    first = (await connection.js.stream_info(FACTS_STREAM)).state.first_seq
    if first > 1:
        there = await archived(connection)
        if there.start > 1 or first > there.stop:
            raise Failure(
                f"the log begins at {first}: a replay would not come to the state that {service} has"
            )
    return await release(StateOf(connection), service, seq)
