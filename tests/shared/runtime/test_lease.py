"""A lease whose writes arrive late, after the holder has taken them for failed."""

import pytest

from shared.runtime.bus.memory import MemoryBus
from shared.runtime.clock import LoopClock
from shared.runtime.lease import Lease
from shared.runtime.shell.virtual import run

KEY, OURS, THEIRS, TTL_S = "lease/planner", b"1/ours", b"2/theirs", 10.0


class LateWrites(MemoryBus):
    """Just before each of the next `late` writes an earlier one of `writer` arrives."""

    late = 0
    writer = OURS

    async def put(
        self, key: str, value: bytes, expected: int | None = None, ttl_s: float | None = None
    ) -> int:
        if self.late:
            self.late -= 1
            await super().put(key, self.writer, expected, ttl_s)
        return await super().put(key, value, expected, ttl_s)


async def held_after(late: int, writer: bytes = OURS) -> bool:
    """Whether a holder still has the lease, if so many writes arrive while it renews it."""
    store = LateWrites(LoopClock())
    lease = Lease(store, KEY, OURS, ttl_s=TTL_S)
    assert await lease.win() is not None
    store.late, store.writer = late, writer
    return await lease.renew() or await lease.win() is not None


@pytest.mark.parametrize("late", range(6))
def test_a_holder_does_not_lose_the_lease_to_its_own_late_writes(late: int) -> None:
    assert run(lambda: held_after(late))


def test_a_holder_loses_the_lease_to_another() -> None:
    assert not run(lambda: held_after(1, THEIRS))
