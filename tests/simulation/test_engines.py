"""The conductor tells the same facts as the asyncio shells of a live stack on virtual time."""

import pytest

from loadgen.scenarios import load_scenario
from loadgen.simulation import simulate
from schemas.events import PlanPublished
from schemas.scenarios import ScenarioFile
from tests.simulation.storms import SMALL

POLICIES = ("hops", "sia", "gavel", "hadar", "allox", "hare", "hlas-p", "jps", "tiresias", "fifo-skipping")


def assert_same(scenario: ScenarioFile, policy: str, seed: int = 1) -> None:
    conducted, looped = (
        simulate(scenario, policy=policy, seed=seed, engine=engine) for engine in ("conductor", "loop")
    )
    for one, other in zip(conducted.events, looped.events, strict=False):
        assert one == other or isinstance(one, PlanPublished)  # whose `solve_s` is the machine's
    assert conducted.result.event_log_hash == looped.result.event_log_hash
    assert conducted.result.metrics == looped.result.metrics


@pytest.mark.parametrize("policy", POLICIES)
def test_the_engines_agree_on_a_small_scenario(policy: str) -> None:
    assert_same(load_scenario("tiny"), policy)


@pytest.mark.parametrize("seed", [1, 2])
def test_the_engines_agree_where_rounds_are_short_and_jobs_of_several_nodes(seed: int) -> None:
    assert_same(SMALL, "hops", seed)


@pytest.mark.benchmark
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("scenario", ["hops-64", "hops-512", "hadar-60", "hadar-60-uniform", "jps-30"])
def test_the_engines_agree_on_every_scenario_that_ships(scenario: str, policy: str) -> None:
    assert_same(load_scenario(scenario), policy)
