"""The agent's decisions: orders in, work for the runner out; the runner's reports in, facts out.

An agent's life begins with NodeJoined. Whatever comes before it in the stream was said to an earlier
life, so it is folded and nothing follows from it.
"""

from schemas.base import Event
from schemas.cluster import Node
from schemas.events import (
    GangFormed,
    NodeJoined,
    Outcome,
    StartOrdered,
    StopOrdered,
    WorkerEvent,
    WorkerStopped,
)
from services.agent.reports import told
from services.agent.runner import Report, StartWorker, StopWorker, TrainWorker
from services.agent.state import State, fold, gpus_wanted
from shared.domain.core import Effects, Input, Publish, Work


class Superseded(RuntimeError):
    """Another agent began a life on the node, so this one must end, and all it runs with it."""


class Agent:
    """`life`: new at every start of the process."""

    def __init__(self, node: Node, life: str) -> None:
        self.state = State()
        self._node = node
        self._life = life

    def handle(self, message: Input, now: float) -> Effects:
        """Raises Superseded."""
        if isinstance(message, Event):
            return self._fact(message, now)
        if isinstance(message, Report):
            worker = self.state.workers.get(message.placement_id)
            return told(worker, message, now) if worker else []
        return []

    def next_wakeup(self) -> float | None:
        return None

    def wake(self, now: float) -> Effects:  # noqa: ARG002 - it has no timers
        return []

    def resume(self, now: float) -> Effects:
        joined = NodeJoined(at=now, node_id=self._node.node_id, node=self._node, life=self._life)
        return [Publish(joined)]

    # ---- orders

    def _fact(self, fact: Event, now: float) -> Effects:
        was_mine = self.state.life == self._life
        news = fold(self.state, fact, self._node.gpus)
        if self.state.life != self._life:
            if was_mine:
                raise Superseded(f"another agent stands for {self._node.node_id}")
            return []
        match fact:
            case StartOrdered():
                return self._start(fact, now, claimed=news)
            case GangFormed() if news:
                return [Work(TrainWorker(fact.placement_id))]
            case StopOrdered():
                return self._stop(fact, now, news=news)
            case _:
                return []

    def _start(self, order: StartOrdered, now: float, *, claimed: bool) -> Effects:
        if claimed:
            return [Work(StartWorker(order, self.state.workers[order.placement_id].gpu_indices))]
        if order.placement_id in self.state.workers or order.placement_id in self.state.ended:
            return []
        free = len(self.state.free(self._node.gpus))
        reason = f"{gpus_wanted(order)} GPUs wanted, {free} free"
        return [Publish(_not_here(order, now, Outcome.REFUSED, reason))]

    def _stop(self, order: StopOrdered, now: float, *, news: bool) -> Effects:
        if news:
            return [Work(StopWorker(order.placement_id))]
        if order.placement_id in self.state.workers:
            return []
        # Whoever orders it believes in a worker: without an answer it would wait for ever. Where the
        # worker's own end was told, this has the same id and is dropped.
        return [Publish(_not_here(order, now, Outcome.CHECKPOINTED, "no such worker"))]


def _not_here(order: WorkerEvent, now: float, outcome: Outcome, reason: str) -> WorkerStopped:
    return WorkerStopped(
        at=now,
        node_id=order.node_id,
        placement_id=order.placement_id,
        job_id=order.job_id,
        outcome=outcome,
        samples_done=0.0,
        leads=False,
        reason=reason,
    )
