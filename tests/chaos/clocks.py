"""Clocks that are wrong: a service of such a life sees another time than the others."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec

from shared.domain.core import Core, Effects, Input
from shared.runtime.clock import Alarm, Clock
from shared.runtime.service import Ports, Service, ServiceFactory


class Clocks(msgspec.Struct):
    off_s: dict[str, float] = {}
    """of the next lives of services, by name"""

    def wrap(self, name: str, make: ServiceFactory) -> ServiceFactory:
        def made(ports: Ports, life: str) -> Service:
            off_s = self.off_s.get(name, 0.0)
            if not off_s:
                return make(ports, life)
            wrong = msgspec.structs.replace(ports, clock=WrongClock(ports.clock, off_s))
            service = make(wrong, life)
            return msgspec.structs.replace(service, core=WrongTime(service.core, off_s))

        return made


class WrongClock:
    """Implements `Clock`."""

    def __init__(self, clock: Clock, off_s: float) -> None:
        self._clock = clock
        self._off_s = off_s

    def now(self) -> float:
        return max(self._clock.now() + self._off_s, 0.0)

    async def sleep(self, cluster_s: float) -> None:
        await self._clock.sleep(cluster_s)

    def at(self, then: float, do: Callable[[], None]) -> Alarm:
        return self._clock.at(then - self._off_s, do)

    def within(self, real_s: float) -> AbstractAsyncContextManager[object]:
        return self._clock.within(real_s)

    def cluster_s(self, real_s: float) -> float:
        return self._clock.cluster_s(real_s)


class WrongTime:
    """Implements `Core`: the core is given a time that is off."""

    def __init__(self, core: Core, off_s: float) -> None:
        self._core = core
        self._off_s = off_s

    @property
    def state(self) -> Any:  # noqa: ANN401 - the core's own
        return self._core.state

    @state.setter
    def state(self, state: Any) -> None:  # noqa: ANN401 - as above
        self._core.state = state

    def handle(self, message: Input, now: float) -> Effects:
        return self._core.handle(message, self._seen(now))

    def next_wakeup(self) -> float | None:
        due = self._core.next_wakeup()
        return None if due is None else due - self._off_s

    def wake(self, now: float) -> Effects:
        due = self._core.next_wakeup()
        seen = self._seen(now)
        return self._core.wake(seen if due is None else max(seen, due))  # not a rounding's breadth too early

    def resume(self, now: float) -> Effects:
        return self._core.resume(self._seen(now))

    def _seen(self, now: float) -> float:
        return max(now + self._off_s, 0.0)
