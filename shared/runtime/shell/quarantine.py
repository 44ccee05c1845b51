"""Quarantine of facts that a service cannot handle: after a second failure on a fact it passes over that.

A core that raised at a fact is in no known state, so its life ends, and the next restores the state by a
replay. A service never passes over a fact that it published itself: it would not know of it, and publish the
like again.
"""

from collections.abc import Callable, Collection

import msgspec
import structlog

from schemas.base import Event
from schemas.quarantine import KEPT, Death, Quarantine, key_of
from shared.runtime.bus.contract import Conflict, Record, State

ERROR_CHARS = 300
ATTEMPTS = 5

log = structlog.get_logger()


class FatalFact(Exception):
    """A core raised at a fact; the cause says what."""

    def __init__(self, record: Record, error: Exception) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.record = record


async def quarantine_of(state: State, service: str) -> Quarantine:
    """Raises Unavailable."""
    return (await _stored(state, service))[0]


async def record_death(state: State, service: str, fatal: FatalFact, own: tuple[type[Event], ...]) -> None:
    """Record that the service failed on the fact."""
    event, seq = fatal.record.event, fatal.record.seq
    death = Death(
        seq=seq,
        subject=event.subject,
        fact=event.tag(),
        error=str(fatal)[:ERROR_CHARS],
        own=isinstance(event, own),
    )
    log.error("a fact ended the service", service=service, **msgspec.to_builtins(death))
    await _change(state, service, lambda known: _with(known, death))


async def release(state: State, service: str, seq: int) -> bool:
    """Have the next life handle the fact in its order; false: the fact is in no quarantine.

    Raises Unavailable.
    """
    if seq not in {one.seq for one in (await quarantine_of(state, service)).deaths}:
        return False
    await _change(state, service, lambda known: _without(known, seq))
    return True


async def forget_released(state: State, service: str, seqs: Collection[int]) -> None:
    """Remove these released facts, which a replay has handled. Raises Unavailable."""

    def rest(known: Quarantine) -> Quarantine:
        left = tuple([seq for seq in known.released if seq not in seqs])
        return msgspec.structs.replace(known, released=left)

    await _change(state, service, rest)


def _without(known: Quarantine, seq: int) -> Quarantine:
    rest = tuple([one for one in known.deaths if one.seq != seq])
    return Quarantine(deaths=rest, released=(*known.released, seq))


def _with(known: Quarantine, death: Death) -> Quarantine:
    others = [one for one in known.deaths if one.seq != death.seq]
    before = sum(one.deaths for one in known.deaths if one.seq == death.seq)
    again = msgspec.structs.replace(death, deaths=before + 1)
    deaths = sorted([*others, again], key=lambda one: one.seq)[-KEPT:]
    return msgspec.structs.replace(known, deaths=tuple(deaths))


async def _change(state: State, service: str, change: Callable[[Quarantine], Quarantine]) -> None:
    for _ in range(ATTEMPTS):
        known, revision = await _stored(state, service)
        try:
            await state.put(key_of(service), msgspec.json.encode(change(known)), expected=revision)
        except Conflict:
            continue
        return


async def _stored(state: State, service: str) -> tuple[Quarantine, int]:
    found = await state.get(key_of(service))
    if found is None:
        return Quarantine(), 0
    try:
        return msgspec.json.decode(found[0], type=Quarantine), found[1]
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Quarantine(), found[1]
