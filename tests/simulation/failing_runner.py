"""Emulated workers that, like real ones, break, wait for their peers, and outlive their agents.

What a node runs is kept outside its agent's life. Whether and when a gang breaks, on which node and how, is a
function of the seed and the placement, so all its nodes agree without messages.
"""

from collections.abc import Callable
from random import Random

import msgspec

from loadgen.stack import Runners
from schemas.catalogue import NOTHING_MORE
from schemas.events import StartOrdered
from schemas.ids import NodeId, PlacementId
from schemas.settings import Settings
from services.agent.tasks import Failed, Interrupted, LastReport, Report, Started
from services.agent.work.emulated import EmulatedRunner
from services.agent.work.rotas import EmulatedWorker
from services.agent.work.runner import Write
from services.agent.work.world import World, WorldFactory
from shared.domain import gangs, in_turns
from shared.runtime.clock import Clock
from shared.runtime.plugins import WORLDS

PEERS_NOTICE_S = 2.0
"""limit within which the peers of a worker that is gone end too; some report before it does"""
DISK_LOSES = 0.1
"""share of starts that find an older checkpoint than the placer knows of"""


class FailureRates(msgspec.Struct, frozen=True, kw_only=True):
    seed: int
    breaks: float
    """share of the placements that break, if they run for long enough"""
    within_s: float
    """limit of the time from the order to start until a placement breaks"""
    fails: float = 0.0
    """share of the breaks that are the job's own fault"""
    loses: float = DISK_LOSES


class Break(msgspec.Struct, frozen=True):
    """How a placement breaks on one of its nodes."""

    after_s: float
    fails: bool
    """by the job's own fault, on this node; else interrupted, or by the loss of a peer"""


class NodeProcesses(msgspec.Struct):
    """What runs on a node, also between two lives of its agent."""

    workers: dict[PlacementId, EmulatedWorker] = {}
    gpus: dict[PlacementId, tuple[int, ...]] = {}
    up: dict[PlacementId, Started] = {}
    unreported: list[Report] = []
    """reports that were made while there was no agent"""
    hear: Callable[[Report], None] | None = None

    def say(self, report: Report) -> None:
        if self.hear is None:
            self.unreported.append(report)
        else:
            self.hear(report)


class FailingRunner(EmulatedRunner):
    def __init__(
        self, held: NodeProcesses, rates: FailureRates, settings: Settings, world: World, clock: Clock
    ) -> None:
        super().__init__(
            world,
            clock,
            startup_s=settings.startup_s,
            checkpoint_s=settings.checkpoint_s,
            observe_every_s=settings.observe_every_s,
        )
        self._held = held
        self._rates = rates
        self._workers = held.workers
        self._report = self._say

    def found(self) -> tuple[PlacementId, ...]:
        """What `adopt` says, without waiting for it."""
        ended = (report.placement_id for report in self._held.unreported if isinstance(report, LastReport))
        return (*self._workers, *ended)

    async def adopt(self) -> tuple[PlacementId, ...]:
        return self.found()

    async def run(self, report: Callable[[Report], None], write: Write | None) -> None:  # noqa: ARG002
        held = self._held
        held.hear = report
        unreported, held.unreported = held.unreported, []
        for again in [*held.up.values(), *unreported]:
            report(again)
        try:
            await self._clock.sleep(float("inf"))
        finally:
            held.hear = None

    def start(self, order: StartOrdered, gpu_indices: tuple[int, ...]) -> None:
        assert self._held_by_others(order).isdisjoint(gpu_indices), "a GPU has one holder at a time"
        self._held.gpus[order.placement_id] = gpu_indices
        super().start(msgspec.structs.replace(order, samples_done=self._restored(order)), gpu_indices)
        ending = None if order.profile_iterations else _ending(self._rates, order)
        if ending is not None:
            worker = self._workers[order.placement_id]
            self._clock.at(order.at + ending.after_s, lambda: self._break(worker, ending))

    def _held_by_others(self, order: StartOrdered) -> set[int]:
        own = in_turns.holder(order.placement_id, order.gang)
        held = self._held.gpus.items()
        return {index for other, gpus in held if self._workers[other].holder != own for index in gpus}

    def train(self, placement_id: PlacementId, meeting: str) -> None:
        """On every node of the gang; only the leader counts. Again after an adoption: it trains already."""
        worker = self._workers.get(placement_id)
        if worker is None or worker.progress is not None:
            return
        assert meeting == _meeting(worker.order), "all meet where rank 0 said"
        if worker.order.node_id in gangs.trained_by(worker.order.gang, meets=False):
            super().train(placement_id, meeting)

    def _restored(self, order: StartOrdered) -> float:
        """In the checkpoint that is really there."""
        random = Random(f"disk/{self._rates.seed}/{order.placement_id}")
        return order.samples_done * (random.random() if random.random() < self._rates.loses else 1.0)

    def _break(self, worker: EmulatedWorker, ending: Break) -> None:
        """Also while it stops: it is gone before it has saved."""
        placement_id = worker.order.placement_id
        if self._workers.get(placement_id) is not worker:
            return
        if worker.alarm is not None:
            worker.alarm.cancel()
        if ending.fails:
            self._end(worker, Failed(placement_id, "exit code 3", exit_code=3))
        else:
            self._end(worker, Interrupted(placement_id, "killed", signal=9))

    def _say(self, report: Report) -> None:
        held = self._held
        match report:
            case Started(placement_id) if not self._workers[placement_id].order.profile_iterations:
                order = self._workers[placement_id].order
                meeting = _meeting(order) if order.node_id == gangs.leader(order.gang) else ""
                report = held.up[placement_id] = Started(placement_id, meeting, order.samples_done)
            case _ if isinstance(report, LastReport):
                held.gpus.pop(report.placement_id)
                held.up.pop(report.placement_id, None)
            case _:
                pass
        held.say(report)


def failing(rates: FailureRates) -> Runners:
    """Of a cluster that is new."""
    nodes: dict[NodeId, NodeProcesses] = {}

    def runner(
        settings: Settings, clock: Clock, node_id: NodeId
    ) -> tuple[FailingRunner, tuple[PlacementId, ...]]:
        make: WorldFactory = WORLDS.load(settings.world)
        world = make(settings, NOTHING_MORE)
        found = FailingRunner(nodes.setdefault(node_id, NodeProcesses()), rates, settings, world, clock)
        return found, found.found()

    return runner


def _meeting(order: StartOrdered) -> str:
    return f"{gangs.leader(order.gang)}:{order.placement_id}"


def _ending(rates: FailureRates, order: StartOrdered) -> Break | None:
    """Of the worker on the node that the order is for; None: it does not break."""
    random = Random(f"break/{rates.seed}/{order.placement_id}")
    if random.random() >= rates.breaks:
        return None
    after_s, first = random.random() * rates.within_s, random.choice(order.gang.nodes)
    fails = random.random() < rates.fails
    jitters_s = {node_id: random.random() * PEERS_NOTICE_S for node_id in order.gang.nodes}
    here = order.node_id
    return Break(after_s + jitters_s[here], fails=fails and here == first)
