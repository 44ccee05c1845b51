"""A node that can start no worker: every job completes on the others, and the node is tried now and then."""

import pytest

from loadgen.scenarios import load_scenario
from loadgen.simulation import Engine, Simulated, simulate
from loadgen.stack import Runners
from schemas.catalogue import NOTHING_MORE
from schemas.events import GpusWithheld, Outcome, StartOrdered, WorkerStarted, WorkerStopped
from schemas.ids import NodeId, PlacementId
from schemas.settings import Settings
from services.agent.gpu_health import FIRST_PAUSE_S, LONGEST_PAUSE_S
from services.agent.tasks import NotStarted
from shared.domain.audit import audit
from shared.runtime.clock import Clock
from shared.runtime.plugins import WORLDS
from tests.simulation.failing_runner import FailingRunner, FailureRates, NodeProcesses

BAD = NodeId("rtx-3090-0")
FULL = "/run/hopyard: No space left on device"
NO_BREAKS = FailureRates(seed=1, breaks=0.0, within_s=1.0, loses=0.0)
NOTICED_S = 1.0


class StartsNothing(FailingRunner):
    def start(self, order: StartOrdered, gpu_indices: tuple[int, ...]) -> None:  # noqa: ARG002
        not_started = NotStarted(order.placement_id, FULL)
        self._clock.at(order.at + NOTICED_S, lambda: self._held.say(not_started))

    def stop(self, placement_id: PlacementId) -> None:
        """There is nothing to stop: the start fails by itself."""


def with_a_bad_node() -> Runners:
    held: dict[NodeId, NodeProcesses] = {}

    def runner(
        settings: Settings, clock: Clock, node_id: NodeId
    ) -> tuple[FailingRunner, tuple[PlacementId, ...]]:
        kind = StartsNothing if node_id == BAD else FailingRunner
        world = WORLDS.load(settings.world)(settings, NOTHING_MORE)
        found = kind(held.setdefault(node_id, NodeProcesses()), NO_BREAKS, settings, world, clock)
        return found, found.found()

    return runner


def ran(policy: str, engine: Engine) -> Simulated:
    return simulate(load_scenario("tiny"), policy=policy, engine=engine, runners=with_a_bad_node())


@pytest.mark.parametrize("engine", ["conductor", "loop"])
@pytest.mark.parametrize("policy", ["hops", "fifo", "gavel", "hadare"])
def test_jobs_complete_beside_a_node_that_starts_nothing(policy: str, engine: Engine) -> None:
    run = ran(policy, engine)
    assert run.result.jobs == {"submitted": 8, "completed": 8}
    assert audit(run.events, drained=True, seqs=run.seqs) == []
    refused = [fact for fact in run.events if isinstance(fact, WorkerStopped) and fact.node_id == BAD]
    assert {fact.outcome for fact in refused} <= {Outcome.REFUSED, Outcome.CHECKPOINTED}
    assert not [fact for fact in run.events if isinstance(fact, WorkerStarted) and fact.node_id == BAD]
    makespan_s = run.result.metrics["makespan_s"]
    assert makespan_s is not None
    pauses = [
        fact for fact in run.events if isinstance(fact, GpusWithheld) and fact.node_id == BAD and fact.gpus
    ]
    growing = 5  # until the pauses are the longest
    assert 0 < len(pauses) <= 2 * (growing + makespan_s / LONGEST_PAUSE_S), "the second half: GPUs come free"
    assert all(FULL in reason for fact in pauses for reason in fact.gpus.values())
    lifted = next(fact for fact in run.events if isinstance(fact, GpusWithheld) and not fact.gpus)
    assert lifted.at == pytest.approx(pauses[0].at + FIRST_PAUSE_S, abs=1.0)
