"""What a service subscribes to is what its core handles: no fact is missing, and none comes in vain."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec
import pytest

from schemas.base import Event
from schemas.events import (
    FACTS,
    NodeDrained,
    NodeLost,
    NodeRestored,
    NodeReturned,
    Outcome,
    PolicyChosen,
    ServiceLed,
)
from schemas.settings import Settings
from schemas.subjects import Filter
from services.admission.build import build as build_admission
from services.admission.folds import FOLDS as ADMISSION
from services.agent.build import build as build_agent
from services.agent.folds import FOLDS as AGENT
from services.estimator.build import build as build_estimator
from services.estimator.folds import FOLDS as ESTIMATOR
from services.monitor.build import build as build_monitor
from services.monitor.folds import FOLDS as MONITOR
from services.placer.build import build as build_placer
from services.placer.folds import FOLDS as PLACER
from services.planner.build import build as build_planner
from services.planner.core.folds import FOLDS as PLANNER
from services.planner.core.triggers import TRIGGERS
from services.profiler.build import build as build_profiler
from services.profiler.folds import FOLDS as PROFILER
from services.table import TABLE
from shared.domain.core import Publish
from shared.runtime.bus.memory import MemoryBus
from shared.runtime.clock import LoopClock
from shared.runtime.service import Ports, Service
from shared.runtime.shell.virtual import run
from tests import fact_builders as build
from tests.fact_builders import NODE, a_node, whole_life
from tests.services.estimator.estimator_builders import modules

SETTINGS = Settings(store=":memory:", policy="fifo")

SERVICES: Mapping[str, tuple[Callable[[Ports], Service], Collection[type[Event]]]] = {
    "admission": (lambda ports: build_admission(SETTINGS, ports), ADMISSION),
    "agent": (lambda ports: build_agent(SETTINGS, ports, a_node(NODE), "1"), AGENT),
    "estimator": (lambda ports: build_estimator(SETTINGS, ports), ESTIMATOR),
    "monitor": (lambda ports: build_monitor(SETTINGS, ports), MONITOR),
    "placer": (lambda ports: build_placer(SETTINGS, ports), PLACER),
    "planner": (lambda ports: build_planner(SETTINGS, ports), {*PLANNER, *TRIGGERS}),
    "profiler": (lambda ports: build_profiler(SETTINGS, ports), PROFILER),
}


def built(name: str) -> Service:
    made: list[Service] = []

    async def make() -> None:
        made.append(SERVICES[name][0](Ports(bus=MemoryBus(LoopClock()), clock=LoopClock())))

    run(make)
    return made[0]


def subject(kind: type[Event]) -> str:
    entity, fact = kind.tag().split(".")
    return f"hopyard.{entity}.{NODE if entity in ('node', 'worker') else 'x'}.{fact}"


def test_every_service_is_held_to_this() -> None:
    assert set(SERVICES) == {entry.name for entry in TABLE}


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_subscribes_to_what_its_core_handles(name: str) -> None:
    wanted = Filter(built(name).facts)
    heard = {kind for kind in FACTS.values() if wanted.passes(subject(kind))}
    assert heard == set(SERVICES[name][1])


LOG: list[Event] = [
    PolicyChosen(at=0.0, policy="fifo"),
    *whole_life("a"),
    build.opened(build.profile_run("d"), at=150.0),
    NodeLost(at=160.0, node_id=NODE),
    NodeReturned(at=161.0, node_id=NODE),
    NodeDrained(at=162.0, node_id=NODE),
    *whole_life("b", at=200.0, place="p-2")[:-2],
    build.checkpointed("b", at=330.0, place="p-2"),
    build.stop_ordered("b", at=340.0, place="p-2"),
    build.worker_stopped("b", at=350.0, place="p-2", outcome=Outcome.CHECKPOINTED),
    build.preempted("b", at=350.0, place="p-2"),
    build.cancelled("b", at=360.0),
    NodeRestored(at=370.0, node_id=NODE),
    *whole_life("c", at=400.0, place="p-3")[:-1],
    build.failed("c", at=530.0, place="p-3"),
    build.submitted("e", at=535.0),
    msgspec.structs.replace(build.profiled("e", at=536.0), modules={build.V100: modules()}),
    ServiceLed(at=540.0, service="planner", instance=2, token=7, repetition=0),
]


@pytest.mark.parametrize("name", SERVICES)
def test_facts_that_a_service_does_not_subscribe_to_would_change_nothing(name: str) -> None:
    service = built(name)
    subscribed = Filter(service.facts)
    heard = [fact for fact in LOG if subscribed.passes(fact.subject)]
    assert len(heard) < len(LOG) or set(SERVICES[name][1]) == set(FACTS.values())
    assert after(built(name), LOG) == after(service, heard)


@pytest.mark.parametrize("name", SERVICES)
def test_no_effect_and_no_other_wakeup_follows_from_a_quiet_fact(name: str) -> None:
    service = built(name)
    assert service.quiet_facts <= set(SERVICES[name][1])
    core = service.core
    for fact in LOG:
        before = core.next_wakeup()
        effects = core.handle(fact, fact.at)
        if type(fact) in service.quiet_facts:
            assert (effects, core.next_wakeup()) == ([], before), fact.tag()


@pytest.mark.parametrize("name", SERVICES)
def test_quiet_facts_may_come_late(name: str) -> None:
    """At the time of the next fact that is not quiet."""
    service, held = built(name), list[Event]()
    published: list[Event] = []
    for fact in LOG:
        held.append(fact)
        if type(fact) not in service.quiet_facts:
            effects = [effect for one in held for effect in service.core.handle(one, fact.at)]
            published += [effect.event for effect in effects if isinstance(effect, Publish)]
            held = []
    for fact in held:
        service.core.handle(fact, fact.at)
    assert (msgspec.to_builtins(service.core.state), published) == after(built(name), LOG)


def after(service: Service, facts: list[Event]) -> tuple[Any, list[Event]]:
    """The core's state and what it published, without what the shell keeps in the state."""
    effects = [effect for fact in facts for effect in service.core.handle(fact, fact.at)]
    state = msgspec.to_builtins(service.core.state)
    return state, [effect.event for effect in effects if isinstance(effect, Publish)]


@pytest.mark.parametrize("name", SERVICES)
def test_the_log_is_one_that_every_service_learns_from(name: str) -> None:
    fresh = msgspec.to_builtins(built(name).core.state)
    assert after(built(name), LOG)[0] != fresh
