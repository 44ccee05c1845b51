"""What the estimator believes of the samples of honest agents."""

import pytest

from loadgen.scenarios import load_scenario
from loadgen.simulation import simulate
from schemas.samples import ThroughputObserved
from services.estimator.belief import Ended, believed
from shared.domain.accuracy import Executions


@pytest.mark.parametrize(
    ("scenario", "policy"), [("jps-15", "jps"), ("hadare-lab", "hadare"), ("tiny", "hops")]
)
def test_all_samples_of_honest_agents_are_believed(
    monkeypatch: pytest.MonkeyPatch, scenario: str, policy: str
) -> None:
    """Gangs in proportional shares, copies, and gangs that are preempted."""
    as_it_came = []

    def watched(
        known: Executions, ended: Ended, seen: ThroughputObserved, now: float
    ) -> ThroughputObserved | None:
        answer = believed(known, ended, seen, now)
        as_it_came.append(answer is seen)
        return answer

    monkeypatch.setattr("services.estimator.core.believed", watched)
    simulate(load_scenario(scenario), policy=policy)
    assert as_it_came
    assert all(as_it_came)
