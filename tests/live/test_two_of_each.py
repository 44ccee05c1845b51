"""Two instances of every service: each leader is killed, stopped and cut off from NATS, under load.

One stack for all, and the last test looks at the whole log: nothing lost, nothing started twice, no GPU with
two owners. Seconds are printed (`-s`) and not asserted: a machine under load takes longer. With AWAY_S=300
who is stopped or cut off is away for five minutes, while jobs are submitted.
"""

import asyncio
import contextlib
import itertools
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from pathlib import Path
from typing import TypeVar

import aiohttp
import pytest
import pytest_asyncio
from msgspec.structs import replace

from hopyard.api.client import Client, LoggedEvent
from hopyard.api.connect import connect, patiently
from hopyard.local.stack import Stack
from hopyard.local.stack_settings import SERVICES
from loadgen.scenarios import arrivals, load_scenario
from schemas.base import Event
from schemas.events import JobSubmitted, NodeLost, NodeReturned, PlanPublished, ServiceLed, StartOrdered
from schemas.ids import JobId, NodeId
from schemas.instances import instance_name
from schemas.jobs import JobFile
from schemas.views import ServiceState, StatusView
from shared.domain.audit import audit
from tests.live.cable import Cable, cable
from tests.live.live_builders import SPEED, all_ended, stack_and_client
from tests.stack_watch import Seconds, until

E = TypeVar("E", bound=Event)

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

LIMIT_S = 120.0
AWAY_S = float(os.environ.get("AWAY_S", "0"))
"""how long who is stopped or cut off is away, beyond what it takes until others lead"""
JOBS_MEANWHILE = 15
LENGTH = 0.5
"""of the scenario's jobs: enough that some always run, and no more for the last test to wait for"""
IDLE_S = 12.0
"""how long a leader may owe something"""


class Loaded:
    """A stack of two of each, and the jobs that it has acknowledged."""

    def __init__(self, stack: Stack, clients: dict[str, Client], stall: Path) -> None:
        """`clients`: of each admission, by the name of its process; `stall`: see `stalling`."""
        self.stall = stall
        self.stack = stack
        self.clients = clients
        self.cables: dict[str, Cable] = {}
        """by which processes come to NATS"""
        self._read = 0
        self._facts: list[Event] = []
        self.asleep: set[str] = set()
        """processes that are away"""
        self.acknowledged: list[JobId] = []
        self._jobs = itertools.cycle(
            [
                replace(arrival.job, samples=arrival.job.samples * LENGTH)
                for arrival in arrivals(load_scenario("tiny"), seed=1)
                if arrival.job.samples is not None
            ]
        )

    @property
    def client(self) -> Client:
        return next(client for name, client in self.clients.items() if name not in self.asleep)

    def job(self) -> JobFile:
        return next(self._jobs)

    async def submit(self, count: int = 1) -> None:
        """Each again and again under its key until it is acknowledged, as a user's command does."""
        for _ in range(count):
            job, key = self.job(), f"key-{len(self.acknowledged)}"
            done = await patiently(lambda job=job, key=key: self.client.submit(job, key))  # type: ignore[misc]
            self.acknowledged.append(done.job_id)

    def pid(self, name: str) -> int:
        return next(one.process.pid for one in self.stack.running if one.program.name == name)

    def signal(self, name: str, number: signal.Signals) -> None:
        os.killpg(self.pid(name), number)

    @contextlib.contextmanager
    def sleeping(self, *names: str) -> Iterator[None]:
        for name in names:
            self.signal(name, signal.SIGSTOP)
        self.asleep.update(names)
        try:
            yield
        finally:
            for name in names:
                self.signal(name, signal.SIGCONT)
            self.asleep.difference_update(names)

    @contextlib.contextmanager
    def cut_off(self, *names: str) -> Iterator[None]:
        for name in names:
            self.cables[name].cut()
        self.asleep.update(names)
        try:
            yield
        finally:
            for name in names:
                self.cables[name].mend()
            self.asleep.difference_update(names)

    def away_by(self, how: str, *names: str) -> contextlib.AbstractContextManager[None]:
        return self.sleeping(*names) if how == "stopped" else self.cut_off(*names)

    @staticmethod
    def other(name: str) -> str:
        """The other instance."""
        return name.removesuffix("-2") if name.endswith("-2") else f"{name}-2"

    async def away(self) -> None:
        """Jobs meanwhile."""
        for _ in range(JOBS_MEANWHILE if AWAY_S else 0):
            await self.submit()
            await asyncio.sleep(AWAY_S / JOBS_MEANWHILE)

    async def restarted(self, name: str, **environ: str) -> None:
        """Kill it, and wait until it follows in its next life, in this environment."""
        await self.reborn(name, **environ)
        await self.follows(name, since=time.time())

    async def reborn(self, name: str, **environ: str) -> None:
        running = next(one for one in self.stack.running if one.program.name == name)
        running.program = replace(running.program, environ=running.program.environ | environ)
        before = self.pid(name)
        self.signal(name, signal.SIGKILL)
        async with asyncio.timeout(LIMIT_S):
            while self.pid(name) == before:
                await asyncio.sleep(0.05)

    async def wire(self, cables: contextlib.AsyncExitStack) -> None:
        """From here on each process comes to NATS by a cable of its own."""
        names = [one.program.name for one in self.stack.running]
        for name in names:
            self.cables[name] = await cables.enter_async_context(cable(self.stack.nats.port))
        second = [name for name in names if name.endswith("-2") and name.removesuffix("-2") in SERVICES]
        for half in second, [name for name in names if name not in second]:
            killed = time.time()
            await asyncio.gather(
                *(
                    self.reborn(name, HOPYARD_NATS_URL=f"nats://127.0.0.1:{self.cables[name].port}")
                    for name in half
                )
            )
            await until(self.client, self._up(half, killed))

    @staticmethod
    def _up(names: Collection[str], since: float) -> Callable[[StatusView], bool]:
        """Whether all services among these have said so after that (Unix time)."""
        wanted = {name for name in names if not name.startswith("agent")}
        return lambda status: (
            wanted
            <= {
                instance_name(one.name, one.instance)
                for one in status.services
                if one.state == ServiceState.UP and one.at > since
            }
        )

    async def follows(self, name: str, since: float = 0.0, lives: int = 0) -> None:
        """Wait until it is up and does not lead; `since`: by a report after that (Unix time); `lives`: of

        at least so many restarts.
        """
        await until(
            self.client,
            lambda status: any(
                instance_name(one.name, one.instance) == name
                and (one.state, one.leads) == (ServiceState.UP, False)
                and one.at > since
                and one.restarts >= lives
                for one in status.services
            ),
        )

    async def restarts(self, name: str) -> int:
        services = (await patiently(self.client.status)).services
        return next(one.restarts for one in services if instance_name(one.name, one.instance) == name)

    async def led(self, service: str) -> list[ServiceLed]:
        facts = await self.facts()
        return [fact for fact in facts if isinstance(fact, ServiceLed) and fact.service == service]

    async def facts(self) -> list[Event]:
        """All that there are by now; those read before are not read again."""
        lines = await patiently(self._lines)
        self._read = lines[-1].seq if lines else self._read
        self._facts += [line.fact() for line in lines]
        return self._facts

    async def _lines(self) -> list[LoggedEvent]:
        return [line async for line in self.client.events(after=self._read)]

    async def leader(self, service: str) -> str:
        """The process that leads: the newest that began to."""
        return instance_name(service, (await self.led(service))[-1].instance)

    async def leaders(self) -> dict[str, str]:
        return {service: await self.leader(service) for service in SERVICES}

    async def fact(self, kind: type[E], node_id: NodeId, after: Event) -> E:
        """The first of a node behind another; it is waited for."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                facts = await self.facts()
                for fact in facts[facts.index(after) + 1 :]:
                    if isinstance(fact, kind) and getattr(fact, "node_id", "") == node_id:
                        return fact
                await asyncio.sleep(0.1)

    async def followed(self, service: str, times: int) -> ServiceLed:
        """The next one that leads, after so many before."""
        async with asyncio.timeout(LIMIT_S):
            while len(found := await self.led(service)) <= times:
                await asyncio.sleep(0.1)
        return found[-1]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def loaded(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Loaded]:
    stall = tmp_path_factory.mktemp("stall") / "which"
    changes = pytest.MonkeyPatch()
    changes.setenv("PYTHONPATH", str(Path(__file__).parent / "stalling"))
    changes.setenv("STALL", str(stall))
    data = tmp_path_factory.mktemp("stack")
    async with (
        contextlib.AsyncExitStack() as cables,  # for longer than the stack
        stack_and_client(data, instances=2, stuck_after_real_s=IDLE_S) as (stack, client),
        connect(f"{stack.scheme}://127.0.0.1:{stack.ports['admission-2']}", stack.token) as other,
    ):
        changes.undo()
        found = Loaded(stack, {"admission": client, "admission-2": other}, stall)
        await found.wire(cables)
        await found.submit(6)
        yield found


async def planned_after(loaded: Loaded, seen: Event) -> PlanPublished:
    """The first plan behind a fact; it is waited for."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            facts = await loaded.facts()
            for fact in facts[facts.index(seen) + 1 :]:
                if isinstance(fact, PlanPublished):
                    return fact
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("service", SERVICES)
async def test_a_leader_that_is_killed_is_followed(loaded: Loaded, service: str) -> None:
    before = len(await loaded.led(service))
    began = time.monotonic()
    loaded.signal(await loaded.leader(service), signal.SIGKILL)
    await loaded.submit()
    submitted_s = time.monotonic() - began
    led = await loaded.followed(service, before)
    print(
        f"{service} killed: led after {time.monotonic() - began:.1f} s, submission after {submitted_s:.1f} s"
    )
    await planned_after(loaded, led)
    print(f"{service} killed: next plan after {time.monotonic() - began:.1f} s")


@pytest.mark.parametrize("how", ["stopped", "cut off"])
@pytest.mark.parametrize("service", SERVICES)
async def test_a_leader_that_is_away_is_followed_and_follows_when_it_is_back(
    loaded: Loaded, service: str, how: str
) -> None:
    before, gone = len(await loaded.led(service)), await loaded.leader(service)
    lives = await loaded.restarts(gone)
    began = Seconds()
    with loaded.away_by(how, gone):
        led = await loaded.followed(service, before)
        began.say(f"{service} {how}: led")
        await loaded.submit()
        await planned_after(loaded, led)
        began.say(f"{service} {how}: next plan")
        await loaded.away()
    back = Seconds()
    assert instance_name(service, led.instance) != gone
    await loaded.follows(gone, lives=lives + 1)
    back.say(f"{service} {how}, and back: follows")


@pytest.mark.parametrize("how", ["stopped", "cut off"])
async def test_an_agent_that_is_away_is_done_without_and_has_work_when_it_is_back(
    loaded: Loaded, how: str
) -> None:
    nodes = (await patiently(loaded.client.nodes)).nodes
    node_id = max(nodes, key=lambda view: len(view.jobs)).node.node_id
    agent, last = f"agent-{node_id}", (await loaded.facts())[-1]
    began = Seconds()
    with loaded.away_by(how, agent):
        lost = await loaded.fact(NodeLost, node_id, after=last)
        began.say(f"{agent} {how}: lost")
        await loaded.submit()
        await planned_after(loaded, lost)
        began.say(f"{agent} {how}: next plan")
        await loaded.away()
    back = Seconds()
    returned = await loaded.fact(NodeReturned, node_id, after=lost)
    back.say(f"{agent} {how}, and back: returned")
    await loaded.submit(JOBS_MEANWHILE)
    await loaded.fact(StartOrdered, node_id, after=returned)
    back.say(f"{agent} {how}, and back: has work")


async def test_a_leader_that_lives_and_does_not_work_says_so_and_is_followed(loaded: Loaded) -> None:
    """Its loop turns and its lease is renewed; what it has done outside, on its disk, never comes back."""
    before, idle = len(await loaded.led("estimator")), await loaded.leader("estimator")
    began = time.monotonic()
    loaded.stall.write_text(f"store {2 if idle.endswith('-2') else 1}")
    try:
        await loaded.submit()
        ready = f"{loaded.stack.scheme}://127.0.0.1:{loaded.stack.ports[idle]}/readyz"
        said = await refused(ready)
        led = await loaded.followed("estimator", before)
    finally:
        loaded.stall.unlink()
    print(f"estimator idle: led after {time.monotonic() - began:.1f} s of which {IDLE_S} are allowed")
    assert instance_name("estimator", led.instance) != idle
    assert "alive but idle" in said
    await until(
        loaded.client,
        lambda status: any(
            instance_name(one.name, one.instance) == idle and "alive but idle" in one.last_error
            for one in status.services
        ),
    )


async def refused(url: str) -> str:
    """What it answers with once it is not ready."""
    async with asyncio.timeout(LIMIT_S), aiohttp.ClientSession() as session:
        while True:
            async with session.get(url) as response:
                if response.status == 503:
                    return str((await response.json(content_type=None))["detail"])
            await asyncio.sleep(0.2)


AHEAD_S = 120


async def test_leaders_with_wrong_clocks_use_the_cluster_s_time(loaded: Loaded) -> None:
    """Of every service the other instance leads, on machines two minutes, this cluster's two hours, off."""
    times = {service: len(await loaded.led(service)) for service in SERVICES}
    right = await loaded.leaders()
    wrong = {service: loaded.other(name) for service, name in right.items()}
    signs = itertools.cycle(("", "-"))
    await asyncio.gather(
        *(loaded.restarted(name, AHEAD_S=f"{next(signs)}{AHEAD_S}") for name in wrong.values())
    )
    since, began = (await patiently(loaded.client.status)).at, time.monotonic()
    stopped = time.monotonic()
    with loaded.sleeping(*right.values()):
        led = {service: await loaded.followed(service, times[service]) for service in SERVICES}
        await loaded.submit()
        plan = await planned_after(loaded, led["planner"])
        print(f"all leaders stopped: next plan after {time.monotonic() - stopped:.1f} s")
        await loaded.away()
    now = since + (time.monotonic() - began) * SPEED
    assert {service: instance_name(service, one.instance) for service, one in led.items()} == wrong
    for said in (*led.values(), plan):
        assert since - AHEAD_S * SPEED / 2 < said.at < now + AHEAD_S * SPEED / 2, said
    await asyncio.gather(*(loaded.follows(name) for name in right.values()))


async def test_leaders_that_are_cut_off_from_nats_are_followed_and_follow_when_they_are_back(
    loaded: Loaded,
) -> None:
    """Those of all services at once, as on a machine whose cable is cut."""
    away = await loaded.leaders()
    times = {service: len(await loaded.led(service)) for service in SERVICES}
    began = Seconds()
    with loaded.cut_off(*away.values()):
        for service in SERVICES:
            led = await loaded.followed(service, times[service])
            began.say(f"{service} cut off with all others: led")
            assert instance_name(service, led.instance) == loaded.other(away[service])
        await loaded.submit()
        await planned_after(loaded, (await loaded.led("planner"))[-1])
        began.say("all leaders cut off: next plan")
        await loaded.away()
    await asyncio.gather(*(loaded.follows(name) for name in away.values()))


async def test_every_admission_takes_jobs(loaded: Loaded) -> None:
    """The one that follows hands them on; under the same key they are one job."""
    job = loaded.job()
    ids = set()
    for client in loaded.clients.values():
        done = await patiently(lambda client=client: client.submit(job, "one-key"))  # type: ignore[misc]
        ids.add(done.job_id)
    assert len(ids) == 1
    loaded.acknowledged += ids


async def test_after_all_that_every_job_ends_and_no_rule_was_broken(loaded: Loaded) -> None:
    await until(loaded.client, all_ended(len(loaded.acknowledged)))
    lines = [line async for line in loaded.client.events()]
    facts = [line.fact() for line in lines]
    assert audit(facts, drained=True, seqs=[line.seq for line in lines]) == []
    submitted = [fact.job_id for fact in facts if isinstance(fact, JobSubmitted)]
    assert sorted(submitted) == sorted(loaded.acknowledged)
