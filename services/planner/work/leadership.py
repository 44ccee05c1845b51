"""Tells a planner that it leads, and whether its settings name another policy than the last leader's."""

from services.planner.core.tasks import Leadership
from shared.runtime.bus.contract import State
from shared.runtime.clock import Clock
from shared.runtime.service import Inbox

CONFIGURED = "planner/policy"
LIMIT_REAL_S = 1.0


async def begin_to_lead(inbox: Inbox, store: State, clock: Clock, *, policy: str, token: int) -> None:
    inbox.put(Leadership(token=token, announce=await _differs(store, clock, policy.encode())))


async def _differs(store: State, clock: Clock, policy: bytes) -> bool:
    """Whether the last leader was configured with another policy; stores this planner's in its place."""
    try:
        async with clock.within(LIMIT_REAL_S):
            before = await store.get(CONFIGURED)
            await store.put(CONFIGURED, policy)
    except OSError:
        return False
    return before is not None and before[0] != policy
