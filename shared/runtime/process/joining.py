"""Passes the settings that all processes of a stack must share to agents that join it from elsewhere.

Admission writes these settings to the bus at its start, and an agent takes those that its own settings leave
open. Beside them admission, which is upgraded last, writes the number of the protocol that the stack speaks.
"""

from collections.abc import Collection

import msgspec

from schemas.settings import Settings
from shared.runtime.bus.contract import State
from shared.runtime.damage import Damaged
from shared.runtime.settings import PREFIX

PROTOCOL = 2
"""version of facts, questions and snapshots; raised when an older release would misread what is written"""
PROTOCOL_KEY = "protocol"
KEY = "settings"
ANNOUNCER = "admission"
SHARED = (
    *("clock_origin", "speed", "seed", "cluster_name", "jobs_folder"),
    *("nats_replicas", "stream_max_bytes", "sample_max_age_real_s", "sample_max_bytes"),
    *("duplicate_window_real_s", "heartbeat_real_s", "node_lease_real_s", "observe_every_s"),
)
"""the settings that are passed on: no secrets, and nothing about one machine"""

Shared = dict[str, str | int | float]


async def announce(bus: State, name: str, settings: Settings) -> None:
    """Have admission write the settings, unless they stand there: it may start though NATS stores nothing.

    Raises Unavailable.
    """
    if name != ANNOUNCER:
        return
    wanted = msgspec.json.encode(
        {PROTOCOL_KEY: PROTOCOL, **{field: getattr(settings, field) for field in SHARED}}
    )
    found = await bus.get(KEY)
    if found is None or found[0] != wanted:
        await bus.put(KEY, wanted)


async def check_protocol(bus: State) -> None:
    """Raises Damaged where a later version has run the stack: this one would misread what it wrote.

    Raises Unavailable.
    """
    found = await bus.get(KEY)
    if found is None:
        return
    try:
        spoken = msgspec.json.decode(found[0], type=_Protocol).protocol
    except (msgspec.DecodeError, UnicodeDecodeError):
        return  # the code that needs the settings says what is wrong with them
    if spoken > PROTOCOL:
        raise Damaged(
            f"a later version has run this stack (protocol {spoken}, and this version speaks {PROTOCOL}): "
            "start that one again, or restore a backup of before it (`hopyard restore FILE --data DIR`)"
        )


class _Protocol(msgspec.Struct):
    protocol: int = 0
    """0: of a version that wrote no number"""


async def announced(bus: State) -> Shared | None:
    """The settings that admission wrote; None: it has not yet. Raises Unavailable, ValueError."""
    found = await bus.get(KEY)
    if found is None:
        return None
    try:
        shared = msgspec.json.decode(found[0], type=Shared)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{KEY} on the bus cannot be read: {error}") from None
    return {name: value for name, value in shared.items() if name in SHARED}


def variables(shared: Shared, own: Collection[str]) -> dict[str, str]:
    """The environment variables for these settings, without those that the process has set itself."""
    return {
        PREFIX + name.upper(): str(value) for name, value in shared.items() if name not in own and value != ""
    }
