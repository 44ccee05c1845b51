"""Under the sixteen faults, several at once and each repeatedly, no rule of the audit is broken."""

from collections import Counter

import msgspec
import pytest

from loadgen.simulation import Engine
from loadgen.stack import WrapFactory
from schemas.base import Event
from schemas.events import JobQueued, JobSubmitted
from shared.domain.core import Effects, Input, Publish
from shared.runtime.service import Ports, Service, ServiceFactory
from tests.chaos.clocks import WrongTime
from tests.chaos.faults import FAULTS, Action
from tests.chaos.storm import Case, random_case, run_case, shortest

EVENTS = 50_000
PARTS = 5
FIRST, *OTHERS = range(PARTS)
ENGINES = ["conductor", pytest.param("loop", marks=pytest.mark.slow)]
SEEDS_APART = 1_000


@pytest.fixture(scope="module")
def hits() -> Counter[int]:
    return Counter()


@pytest.mark.parametrize("part", [FIRST, *(pytest.param(one, marks=pytest.mark.slow) for one in OTHERS)])
def test_no_rule_is_broken_under_any_fault(part: int, hits: Counter[int]) -> None:
    events, seed = 0, part * SEEDS_APART
    while events < EVENTS / PARTS:
        result = run_case(random_case(seed))
        assert result.broken == [], f"python -m tests.chaos --seed {seed}"
        events, seed = events + result.events, seed + 1
        hits.update(result.hits)


def test_every_fault_was_hit(hits: Counter[int]) -> None:
    """By the cases above; else they would not test every fault."""
    assert {number for number in FAULTS if not hits[number]} == set()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_the_shells_of_a_live_stack_break_no_rule_either(seed: int) -> None:
    result = run_case(random_case(seed, rounds=4), engine="loop")
    assert result.broken == []
    assert sum(result.hits.values()) > len(FAULTS)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_same_seed_gives_the_same_case(engine: Engine) -> None:
    one, other = (run_case(random_case(7, rounds=2), engine) for _ in range(2))
    assert (one.events, one.hits) == (other.events, other.hits)


class Forgetful(WrongTime):
    """A core that does not hear of every job that is ready to run."""

    def handle(self, message: Input, now: float) -> Effects:
        missed = isinstance(message, JobQueued) and message.job_id.endswith("3")
        return [] if missed else super().handle(message, now)


def faulty(which: str, core: type[WrongTime]) -> WrapFactory:
    """Of this service: its own core within one that is at fault."""

    def wrap(name: str, make: ServiceFactory) -> ServiceFactory:
        def made(ports: Ports, life: str) -> Service:
            service = make(ports, life)
            return msgspec.structs.replace(service, core=core(service.core, 0.0))

        return made if name == which else make

    return wrap


class Careless(WrongTime):
    """A core that answers a submission and does not store it."""

    def handle(self, message: Input, now: float) -> Effects:
        effects = super().handle(message, now)
        return [effect for effect in effects if not (isinstance(effect, Publish) and _unlucky(effect.event))]


def _unlucky(fact: Event) -> bool:
    return isinstance(fact, JobSubmitted) and fact.job_id.endswith("3")


@pytest.mark.parametrize(
    ("service", "core", "rule"),
    [("planner", Forgetful, "job-lost"), ("admission", Careless, "acknowledged-lost")],
)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_service_at_fault_is_found(service: str, core: type[WrongTime], rule: str, engine: Engine) -> None:
    result = run_case(random_case(2, rounds=2), engine, wrap=faulty(service, core))
    assert any(one.startswith(rule) for one in result.broken), result.broken


def inject(fault: int) -> Action:
    return Action(fault=fault, skip=0, steps=0, pick=0.5, away_s=0.0)


def test_the_shortest_case_keeps_only_the_actions_that_matter() -> None:
    long = Case(1, tuple(inject(fault) for fault in [*FAULTS, *FAULTS]))

    def fails(one: Case) -> bool:
        faults = [action.fault for action in one.actions]
        return 3 in faults and 11 in faults[faults.index(3) :]

    assert [action.fault for action in shortest(long, fails).actions] == [3, 11]
