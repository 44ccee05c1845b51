"""Emulated nodes with faults: slow starts, workers that ignore a stop, GPUs gone or in use by others."""

from random import Random

import msgspec

from loadgen.stack import Runners
from schemas.catalogue import NOTHING_MORE
from schemas.ids import NodeId, PlacementId
from schemas.settings import Settings
from services.agent.tasks import ALL_WELL, Failed, GpusSeen
from services.agent.work.rotas import EmulatedWorker
from services.agent.work.world import WorldFactory
from shared.runtime.clock import Clock
from shared.runtime.plugins import WORLDS
from tests.simulation.failing_runner import Break, FailingRunner, FailureRates, NodeProcesses

GRACE_S = 30.0
"""after which a worker that does not stop is killed"""


class NodeFaults(msgspec.Struct):
    """Faults of a cluster's nodes, and how often each had an effect."""

    slow_s: dict[NodeId, float] = {}
    """the next start there takes so much longer"""
    ignoring_stop: set[PlacementId] = set()
    held: dict[NodeId, NodeProcesses] = {}
    runners: dict[NodeId, "FaultyNodeRunner"] = {}
    slow_starts: int = 0
    ignored_stops: int = 0


class FaultyNodeRunner(FailingRunner):
    """A runner with `NodeFaults`. Its workers fail by themselves too, as a seed says."""

    def __init__(
        self, node_faults: NodeFaults, node_id: NodeId, rates: FailureRates, settings: Settings, clock: Clock
    ) -> None:
        make: WorldFactory = WORLDS.load(settings.world)
        held = node_faults.held.setdefault(node_id, NodeProcesses())
        super().__init__(held, rates, settings, make(settings, NOTHING_MORE), clock)
        self._faults = node_faults
        self._node_id = node_id

    def stop(self, placement_id: PlacementId) -> None:
        worker = self._workers.get(placement_id)
        if worker is None or placement_id not in self._faults.ignoring_stop:
            super().stop(placement_id)
            return
        self._faults.ignored_stops += 1
        killed = Break(0.0, fails=False)
        self._clock.at(self._clock.now() + GRACE_S, lambda: self._break(worker, killed))

    def _start_s(self, worker: EmulatedWorker) -> float:
        more_s = self._faults.slow_s.pop(self._node_id, 0.0)
        self._faults.slow_starts += more_s > 0
        return super()._start_s(worker) + more_s

    def lose_gpu(self, pick: float) -> bool:
        """A GPU with a worker falls off the bus; the worker fails by that. False: no worker, or no agent."""
        hear, gpus = self._held.hear, sorted(self._held.gpus.items())
        if hear is None or not gpus:
            return False
        placement_id, indices = gpus[int(pick * len(gpus))]
        gone = indices[int(pick * 7919) % len(indices)]
        hear(GpusSeen(busy={}, broken={gone: "fallen off the bus"}))  # type: ignore[arg-type] # an input too
        worker = self._workers[placement_id]
        if worker.alarm is not None:
            worker.alarm.cancel()
        self._end(worker, Failed(placement_id, "the device is gone", exit_code=1))
        return True

    def used_by_others(self) -> bool:
        """Every GPU that no worker of ours has is found in use, twice in a row. False: no agent."""
        busy = dict.fromkeys(range(16), "python (4711)")
        return all(self._look(GpusSeen(busy=busy, broken={})) for _ in range(2))

    def free_again(self) -> None:
        self._look(ALL_WELL)

    def _look(self, seen: GpusSeen) -> bool:
        if self._held.hear is None:
            return False
        self._held.hear(seen)  # type: ignore[arg-type] # an input too
        return True


def faulty_nodes(node_faults: NodeFaults, rates: FailureRates) -> Runners:
    """Of a cluster that is new."""

    def runner(
        settings: Settings, clock: Clock, node_id: NodeId
    ) -> tuple[FaultyNodeRunner, tuple[PlacementId, ...]]:
        found = node_faults.runners[node_id] = FaultyNodeRunner(node_faults, node_id, rates, settings, clock)
        return found, found.found()

    return runner


def draws(seed: int, what: str) -> Random:
    return Random(f"chaos/{what}/{seed}")
