"""What the estimator believes of the samples of honest agents."""

import pytest

from loadgen.scenarios import load_scenario
from loadgen.simulation import simulate
from schemas.samples import ThroughputObserved
from services.estimator.belief import Belief
from shared.domain.accuracy import Executions


class Watched(Belief):
    """Knows what it believed as it came, and what not."""

    as_it_came: list[bool]

    def believed(self, known: Executions, seen: ThroughputObserved, now: float) -> ThroughputObserved | None:
        answer = super().believed(known, seen, now)
        self.as_it_came.append(answer is seen)
        return answer


@pytest.mark.parametrize(
    ("scenario", "policy"), [("jps-15", "jps"), ("hadare-lab", "hadare"), ("tiny", "hops")]
)
def test_all_samples_of_honest_agents_are_believed(
    monkeypatch: pytest.MonkeyPatch, scenario: str, policy: str
) -> None:
    """Gangs in proportional shares, copies, and gangs that are preempted."""
    Watched.as_it_came = []
    monkeypatch.setattr("services.estimator.core.Belief", Watched)
    simulate(load_scenario(scenario), policy=policy)
    assert Watched.as_it_came
    assert all(Watched.as_it_came)
