"""The conductor tells the same facts as the asyncio shells of a live stack on virtual time."""

from collections.abc import Sequence
from random import Random

import pytest

from loadgen.fault_injection import Disturbance, Stack
from loadgen.scenarios import load_scenario
from loadgen.simulation import simulate
from schemas.events import NodeDrained, NodeRestored, PlanPublished
from schemas.scenarios import ScenarioFile
from tests.simulation.storms import AWAY_S, NODES, SMALL, kill, part

POLICIES = ("hops", "sia", "gavel", "hadar", "allox", "hare", "hlas-p", "jps", "tiresias", "fifo-skipping")


def assert_same(
    scenario: ScenarioFile, policy: str, seed: int = 1, disturb: Sequence[Disturbance] = ()
) -> None:
    conducted, looped = (
        simulate(scenario, policy=policy, seed=seed, disturb=disturb, engine=engine)
        for engine in ("conductor", "loop")
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


def troubles(seed: int, count: int = 8) -> Disturbance:
    """Now and then a service or agent is killed, an agent cut off, or a node drained, for a while."""

    async def disturb(stack: Stack) -> None:
        random = Random(f"troubles/{seed}")
        for _ in range(count):
            await stack.sleep(random.uniform(1.0, 300.0))
            name, node_id, away_s = random.choice(stack.names), random.choice(NODES), random.choice(AWAY_S)
            match random.choice(("kill", "part", "drain")):
                case "kill":
                    await kill(stack, name, away_s)
                case "part":
                    await part(stack, f"agent-{node_id}", away_s)
                case _:
                    at = stack.stored(0)[-1].at
                    stack.store(NodeDrained(at=at, node_id=node_id))
                    await stack.sleep(away_s)
                    stack.store(NodeRestored(at=at + away_s, node_id=node_id))

    return disturb


@pytest.mark.parametrize("seed", range(8))
def test_the_engines_agree_where_services_and_nodes_are_in_trouble(seed: int) -> None:
    assert_same(SMALL, POLICIES[seed], seed, [troubles(seed)])


@pytest.mark.benchmark
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("scenario", ["hops-64", "hops-512", "hadar-60", "hadar-60-uniform", "jps-30"])
def test_the_engines_agree_on_every_scenario_that_ships(scenario: str, policy: str) -> None:
    assert_same(load_scenario(scenario), policy)
