"""Facts in quarantine, looked up and released in the state bucket of a stack."""

from collections.abc import Sequence

from hopyard.failures import Failure
from schemas.quarantine import Death
from schemas.subjects import FACTS_STREAM
from shared.runtime.bus.jetstream.connection import Connection
from shared.runtime.bus.jetstream.state import JetStreamState
from shared.runtime.process.reports import NAMES
from shared.runtime.shell.quarantine import quarantine_of, release


class StateOf(JetStreamState):
    """The state bucket alone."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection


async def found_of(connection: Connection, services: Sequence[str]) -> dict[str, tuple[Death, ...]]:
    """By service, those that have any. Raises Unavailable."""
    state = StateOf(connection)
    found = {name: (await quarantine_of(state, name)).in_force for name in services or NAMES}
    return {name: deaths for name, deaths in found.items() if deaths}


async def released(connection: Connection, service: str, seq: int) -> bool:
    """False: it is in no quarantine of the service. Raises Failure where the log has lost its beginning."""
    first = (await connection.js.stream_info(FACTS_STREAM)).state.first_seq
    if first > 1:
        raise Failure(f"the log begins at {first}: a replay would not come to the state that {service} has")
    return await release(StateOf(connection), service, seq)
