"""Every installed policy runs a scenario of several types, counts and arrivals to its end."""

import builtins
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from loadgen.simulation import simulate
from schemas.codec import encode
from services.planner.policies.registry import names
from shared.domain.audit import audit
from shared.domain.invariants import read_fact
from tests.simulation.storms import JOBS, NARROW, NEVER_PLACED, SMALL, Operators, stormy

HOME = Path(__file__).parents[2]
OURS = tuple(f"{HOME / folder}/" for folder in ("schemas", "shared", "services", "loadgen"))


@pytest.fixture(autouse=True)
def _floats_are_added_alike_by_every_python(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The built-in sum of floats is rounded otherwise from Python 3.12 on: see `shared.domain.sums`."""
    built_in, found = sum, set[str]()

    def watched(values: Iterable[float], /, start: float = 0) -> float:
        items = list(values)
        caller = sys._getframe(1).f_code
        if caller.co_filename.startswith(OURS) and [type(one) for one in items].count(float) > 1:
            found.add(f"{caller.co_filename}: {caller.co_qualname}")
        return built_in(items, start)

    monkeypatch.setattr(builtins, "sum", watched)
    yield
    assert not found, "floats are added by plain_sum"


@pytest.mark.parametrize("policy", names())
def test_every_policy_completes_the_jobs_it_can_place_and_names_the_others(policy: str) -> None:
    run = simulate(SMALL, policy=policy)
    never = NEVER_PLACED.get(policy, set())
    assert set(run.result.waiting) == never
    assert run.result.jobs["completed"] == JOBS - len(never)
    assert audit(run.events, drained=not never, seqs=run.seqs) == []
    assert [read_fact(encode(event)) for event in run.events] == run.events, "what it says can be read"


@pytest.mark.parametrize("policy", names())
def test_a_storm_costs_every_policy_only_time(policy: str) -> None:
    """Other seeds of some policies: `test_storms`."""
    run = stormy(100, policy)
    waiting = set(run.result.waiting)
    assert waiting <= NEVER_PLACED.get(policy, set()), "a storm may also bring about that they are placed"
    assert run.result.jobs["completed"] == JOBS - len(waiting)
    assert audit(run.events, drained=not waiting, seqs=run.seqs) == []


@pytest.mark.slow
@pytest.mark.parametrize("policy", names())
def test_drained_nodes_cost_every_policy_only_time(policy: str) -> None:
    """Nodes are drained and restored in a storm; every job can run on any node of its type."""
    run = stormy(101, policy, scenario=NARROW, beside=[Operators(101)])
    never = {"rigid-2"} if policy == "hops-literal" else set()
    assert set(run.result.waiting) == never
    assert run.result.jobs["completed"] == JOBS - len(never)
    assert audit(run.events, drained=not never, seqs=run.seqs) == []
