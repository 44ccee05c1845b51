"""The conductor: keeps the time, gives services their turns and hands messages from one to the next."""

import heapq
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from schemas.base import Event, Question, Sample
from schemas.settings import Settings
from shared.runtime.bus.contract import Answer, Unavailable
from shared.runtime.bus.memory import Faults
from shared.runtime.bus.memory.state import Values
from shared.runtime.conductor.conducted_shell import ConductedShell, DurableState
from shared.runtime.conductor.coroutine_driver import CoroutineDriver, Until, Wake
from shared.runtime.conductor.faulty import FaultyShell
from shared.runtime.conductor.log import ConductedLog
from shared.runtime.conductor.ports import ConductedBus, ConductedClock, ConductedTasks
from shared.runtime.conductor.timers import Timers
from shared.runtime.service import Ports, Service, ServiceFactory
from shared.runtime.shell.virtual import RESOLUTION_S


class Stalled(RuntimeError):
    """Every service waits and no timer is set, so nothing would ever happen again."""


class Conductor:
    """Services by name, in the order of their turns.

    `lasting`: facts, cursors and snapshots are kept, so that a service can be killed and started again.
    """

    def __init__(
        self,
        factories: Mapping[str, ServiceFactory],
        settings: Settings,
        *,
        faults: Faults | None = None,
        lasting: bool = False,
    ) -> None:
        self.now = 0.0
        self.timers = Timers()
        self._faults = faults or Faults()
        self._lasting = lasting or faults is not None
        self.log = ConductedLog(self._faults)
        self.clock = ConductedClock(self)
        self.values = Values(self.clock)
        self.blobs: dict[str, bytes] = {}
        self._factories = factories
        self._settings = settings
        self._ranks = {name: rank for rank, name in enumerate(factories)}
        self._lives = dict.fromkeys(factories, 0)
        self._kept = {name: DurableState() for name in factories}
        self._shells: dict[str, ConductedShell] = {}
        self._buses: dict[str, ConductedBus] = {}
        self._ready: list[int] = []
        """a heap: ranks of the shells that have something to do, and perhaps of shells that have ended"""
        self._at: dict[int, ConductedShell] = {}
        self._servers: dict[str, ConductedShell] = {}
        self._listeners: dict[type[Sample], list[ConductedShell]] = {}
        self._stepping: list[list[Any]] = []
        """for each call of `steps`: the turns left to wait for, and the wake of the caller"""
        self._error: BaseException | None = None
        self._answers: dict[str, Answer] = {}
        self._once: dict[type[Sample], list[Wake]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._factories)

    # ---- running

    def run(self, over: Callable[[], bool]) -> None:
        """Run until `over` holds, to the end of that instant. Raises Stalled, and what any service raises."""
        timers, ready = self.timers, self._ready
        while True:
            if timers.soonest < self.now + RESOLUTION_S:
                timers.run_next()
            elif ready:
                self._turn(heapq.heappop(ready))
            elif over():
                return
            else:
                self._advance()
            if self._error is not None:
                raise self._error

    def _advance(self) -> None:
        """Move the time to the next alarm. Raises Stalled."""
        first = self.timers.first()
        if first is None:
            raise Stalled("nothing can ever happen again")
        self.now = max(self.now, first)
        if not self._lasting:  # every service has begun, so none reads from the past
            self.log.keep_none()

    def begin(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine that is no service; an error of it ends the run."""

        def done(_: object, error: BaseException | None) -> None:
            if error is not None:
                self.failed(error)

        CoroutineDriver(coroutine, done).go()

    def ready(self, shell: ConductedShell) -> None:
        if not shell.waits:
            shell.waits = True
            heapq.heappush(self._ready, shell.rank)

    def _turn(self, rank: int) -> None:
        shell = self._at[rank]
        if shell.waits:
            shell.waits = False
            shell.turn()
            if self._stepping:
                self._step()

    def _step(self) -> None:
        for stepping in list(self._stepping):
            stepping[0] -= 1
            if stepping[0] <= 0:
                self._stepping.remove(stepping)
                stepping[1]()

    def failed(self, error: BaseException) -> None:
        """End the run with this error of a service."""
        self._error = self._error or error

    # ---- services

    def start(self, name: str) -> None:
        """Begin a life of a service, from what is kept of the last one."""
        self._lives[name] += 1
        bus = ConductedBus(self, name)
        life = self._lives[name]
        ports = Ports(bus=bus, clock=self.clock, tasks=ConductedTasks(), fencing_token=lambda: life)
        service = self._factories[name](ports, str(self._lives[name]))
        shell = self._shell(service, name)
        self._shells[name] = self._at[shell.rank] = shell
        self._buses[name] = bus
        if service.answers is not None:
            self._servers[service.answers] = shell
        for kind in service.samples:
            self._listeners.setdefault(kind, []).append(shell)
        self.ready(shell)

    def _shell(self, service: Service, name: str) -> ConductedShell:
        rank, kept = self._ranks[name], self._kept[name]
        if not self._lasting:
            return ConductedShell(self, service, self._settings, rank=rank, kept=kept)
        life = str(self._lives[name])
        return FaultyShell(
            self, service, self._settings, rank=rank, kept=kept, faults=self._faults, life=life
        )

    def shell(self, name: str) -> ConductedShell:
        """The shell of a service that runs. Raises Unavailable between two lives."""
        if name not in self._shells:
            raise Unavailable(f"{name} is not running")
        return self._shells[name]

    # ---- what may happen to them

    async def sleep(self, seconds: float) -> None:
        await self.clock.sleep(seconds)

    async def facts(self, count: int) -> None:
        """Return once `count` more facts are stored."""
        last = self.log.last_seq + count
        while self.log.last_seq < last:
            await Until(self.log.next_fact)

    async def steps(self, count: int) -> None:
        """Return after `count` more turns of services."""
        if count:
            await Until(lambda wake: self._stepping.append([count, wake]))

    def is_up(self, name: str) -> bool:
        return self.shell(name).begun

    async def kill(self, name: str) -> None:
        """End a service at once, as `kill -9` does: what it had not published is lost."""
        shell = self._shells.pop(name)
        shell.end()
        if shell.service.answers is not None:
            del self._servers[shell.service.answers]
        for listeners in self._listeners.values():
            if shell in listeners:
                listeners.remove(shell)
        if shell.service.close is not None:
            await shell.service.close()
        await self._buses[name].close()

    def cut(self, name: str) -> None:
        """Cut a service off from the others until `mend`, or until its next life."""
        shell = self.shell(name)
        assert isinstance(shell, FaultyShell), "only a lasting run can be disturbed"
        self._buses[name].cut()
        shell.cut_off()

    def mend(self, name: str) -> None:
        shell = self._shells.get(name)
        if isinstance(shell, FaultyShell):
            self._buses[name].mend()
            shell.mend()

    def stall(self, name: str) -> None:
        """Have a service take no turns until `go_on`, or until its next life; its coroutines go on."""
        shell = self.shell(name)
        assert isinstance(shell, FaultyShell), "only a lasting run can be disturbed"
        shell.stall()

    def go_on(self, name: str) -> None:
        shell = self._shells.get(name)
        if isinstance(shell, FaultyShell):
            shell.go_on()

    def stored(self, after: int) -> Sequence[Event]:
        return self.log.stored(after)

    def store(self, fact: Event) -> None:
        self.log.store(fact)

    async def put_to(self, name: str, question: Question) -> object:
        return await self.shell(name).ask(question)

    # ---- from one to the next

    def send(self, sample: Sample) -> None:
        for shell in self._listeners.get(type(sample), ()):
            if shell.begun and shell.linked:
                shell.put(sample)
        for wake in self._once.pop(type(sample), ()):
            wake(sample)

    def hear_once(self, kinds: Sequence[type[Sample]], wake: Wake) -> None:
        for kind in kinds:
            self._once.setdefault(kind, []).append(wake)

    def serve(self, subject: str, answer: Answer) -> None:
        """Have a coroutine answer a subject that no service answers."""
        self._answers[subject] = answer

    def ask(self, question: Question, timeout_s: float, wake: Wake) -> None:
        shell, other = self._servers.get(question.subject), self._answers.get(question.subject)
        if other is not None:
            CoroutineDriver(other(question), wake).go()  # type: ignore[arg-type]
            return
        if shell is None or not shell.begun:
            wake(error=Unavailable(f"nothing answers {question.subject}"))
            return
        late = Unavailable(f"no answer from {question.subject} within {timeout_s} s")
        limit = self.timers.at(self.now + timeout_s, lambda: wake(error=late))

        def answered(message: object = None, error: BaseException | None = None) -> None:
            limit.cancel()
            wake(message, error)

        shell.question(question, answered)
