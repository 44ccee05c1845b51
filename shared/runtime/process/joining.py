"""What a process that joins a stack from elsewhere must have in common with it, handed on by the bus.

Admission writes these settings at its start; an agent takes them for all that its own settings leave open.
"""

from collections.abc import Collection

import msgspec

from schemas.settings import Settings
from shared.runtime.bus.contract import State
from shared.runtime.settings import PREFIX

KEY = "settings"
ANNOUNCER = "admission"
SHARED = (
    *("clock_origin", "speed", "seed", "cluster_name", "jobs_folder"),
    *("nats_replicas", "stream_max_bytes", "sample_max_age_real_s", "sample_max_bytes"),
    *("duplicate_window_real_s", "heartbeat_real_s", "node_lease_real_s", "observe_every_s"),
)
"""no secrets, and nothing about one machine"""

Shared = dict[str, str | int | float]


async def announce(bus: State, name: str, settings: Settings) -> None:
    """Raises Unavailable."""
    if name == ANNOUNCER:
        await bus.put(KEY, msgspec.json.encode({field: getattr(settings, field) for field in SHARED}))


async def announced(bus: State) -> Shared | None:
    """None: no stack has begun on this bus. Raises Unavailable."""
    found = await bus.get(KEY)
    if found is None:
        return None
    try:
        shared = msgspec.json.decode(found[0], type=Shared)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{KEY} on the bus cannot be read: {error}") from None
    return {name: value for name, value in shared.items() if name in SHARED}


def variables(shared: Shared, own: Collection[str]) -> dict[str, str]:
    """The environment that makes them hold, but for those that the process has set itself."""
    return {
        PREFIX + name.upper(): str(value) for name, value in shared.items() if name not in own and value != ""
    }
