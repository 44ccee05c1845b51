"""Emulated nodes that can be made ill: slow to start, deaf to a stop, GPUs gone or in use by others."""

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
from tests.simulation.frail import Break, FrailRunner, Frailty, Held

GRACE_S = 30.0
"""after which a worker that does not stop is killed"""


class Ills(msgspec.Struct):
    """What ails a cluster, and how often it showed."""

    slow_s: dict[NodeId, float] = {}
    """the next start there takes so much longer"""
    deaf: set[PlacementId] = set()
    held: dict[NodeId, Held] = {}
    runners: dict[NodeId, "IllRunner"] = {}
    slow_starts: int = 0
    unheard_stops: int = 0


class IllRunner(FrailRunner):
    """See `Ills`. It breaks by itself too, by a seed."""

    def __init__(
        self, ills: Ills, node_id: NodeId, frailty: Frailty, settings: Settings, clock: Clock
    ) -> None:
        make: WorldFactory = WORLDS.load(settings.world)
        held = ills.held.setdefault(node_id, Held())
        super().__init__(held, frailty, settings, make(settings, NOTHING_MORE), clock)
        self._ills = ills
        self._node_id = node_id

    def stop(self, placement_id: PlacementId) -> None:
        worker = self._workers.get(placement_id)
        if worker is None or placement_id not in self._ills.deaf:
            super().stop(placement_id)
            return
        self._ills.unheard_stops += 1
        killed = Break(0.0, fails=False)
        self._clock.at(self._clock.now() + GRACE_S, lambda: self._break(worker, killed))

    def _start_s(self, worker: EmulatedWorker) -> float:
        more_s = self._ills.slow_s.pop(self._node_id, 0.0)
        self._ills.slow_starts += more_s > 0
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


def ill(ills: Ills, frailty: Frailty) -> Runners:
    """Of a cluster that is new."""

    def runner(
        settings: Settings, clock: Clock, node_id: NodeId
    ) -> tuple[IllRunner, tuple[PlacementId, ...]]:
        found = ills.runners[node_id] = IllRunner(ills, node_id, frailty, settings, clock)
        return found, found.found()

    return runner


def draws(seed: int, what: str) -> Random:
    return Random(f"chaos/{what}/{seed}")
