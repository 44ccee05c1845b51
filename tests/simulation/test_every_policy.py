"""Every installed policy runs a scenario of several types, counts and arrivals to its end."""

import pytest

from loadgen.simulation import simulate
from schemas.codec import encode
from services.planner.policies.registry import names
from shared.domain.audit import audit
from shared.domain.invariants import read_fact
from tests.simulation.storms import JOBS, NEVER_PLACED, SMALL, stormy


@pytest.mark.parametrize("policy", names())
def test_every_policy_completes_what_it_can_place_and_the_others_are_named(policy: str) -> None:
    run = simulate(SMALL, policy=policy)
    never = NEVER_PLACED.get(policy, set())
    assert set(run.result.waiting) == never
    assert run.result.jobs["completed"] == JOBS - len(never)
    assert audit(run.events, drained=not never, seqs=run.seqs) == []
    assert [read_fact(encode(event)) for event in run.events] == run.events, "what it says can be read"


@pytest.mark.parametrize("policy", names())
def test_a_storm_costs_every_policy_time_and_nothing_else(policy: str) -> None:
    """Other seeds of some policies: `test_storms`."""
    run = stormy(100, policy)
    never = NEVER_PLACED.get(policy, set())
    assert set(run.result.waiting) == never
    assert run.result.jobs["completed"] == JOBS - len(never)
    assert audit(run.events, drained=not never, seqs=run.seqs) == []
