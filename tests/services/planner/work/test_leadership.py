"""What a planner says when it begins to lead."""

import asyncio

from services.planner.core.tasks import Leadership
from services.planner.work.leadership import begin_to_lead
from shared.runtime.bus.memory import MemoryBus
from shared.runtime.clock import LoopClock
from shared.runtime.service import Inbox
from shared.runtime.shell import virtual


def test_a_leader_set_to_another_policy_announces_it_and_one_set_alike_does_not() -> None:
    said: list[Leadership] = []

    async def main() -> None:
        bus, inbox = (
            MemoryBus(LoopClock()),
            Inbox(put=said.append, ask=_nobody, replayed=lambda: True, seq=lambda: 0),
        )
        for token, policy in enumerate(("hops", "fifo", "fifo")):
            await begin_to_lead(inbox, bus, LoopClock(), policy=policy, token=token)

    virtual.run(main)
    assert said == [
        Leadership(token=0, announce=False),
        Leadership(token=1, announce=True),
        Leadership(token=2, announce=False),
    ]


async def _nobody(_: object) -> None:
    await asyncio.sleep(0)
    raise AssertionError("it asks nothing")
