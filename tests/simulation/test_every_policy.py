"""Every installed policy runs a scenario of several types, counts and arrivals to its end."""

import pytest

from loadgen.simulation import simulate
from services.planner.work.registry import names
from shared.domain.audit import audit
from tests.simulation.storms import JOBS, NEVER_PLACED, SMALL


@pytest.mark.parametrize("policy", names())
def test_every_policy_completes_what_it_can_place_and_the_others_are_named(policy: str) -> None:
    run = simulate(SMALL, policy=policy)
    never = NEVER_PLACED.get(policy, set())
    assert set(run.result.waiting) == never
    assert run.result.jobs["completed"] == JOBS - len(never)
    assert audit(run.events, drained=not never, seqs=run.seqs) == []
