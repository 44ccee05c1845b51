"""Under churn all jobs end, and at any time services agree on who has which GPUs, and `why` is true."""

from functools import cache

import pytest

from schemas.events import PlanPublished
from shared.domain.audit import audit
from tests.simulation.churn import JOBS, Churned, churned

SEEDS = (*range(12), 25, 60, 79, 111, 150, 182)
"""the last ones met faults that have been repaired since"""


@cache
def run(seed: int) -> Churned:
    return churned(seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_services_agree_whatever_happens(seed: int) -> None:
    assert run(seed).found == []
    ran = run(seed).ran
    assert [str(one) for one in audit(ran.events, drained=True, seqs=ran.seqs)] == []
    ended = sum(count for state, count in ran.result.jobs.items() if state != "submitted")
    assert ended == ran.result.jobs["submitted"] == JOBS


def test_the_churn_has_many_policies_and_reasons_to_wait() -> None:
    """Or the test above would say little."""
    runs = [run(seed) for seed in SEEDS]
    plans = [fact for one in runs for fact in one.ran.events if isinstance(fact, PlanPublished)]
    assert len({plan.policy for plan in plans}) > 8
    assert sum(one.looks for one in runs) > 300
    assert len(set.union(*(one.reasons for one in runs))) > 6
