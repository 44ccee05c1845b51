"""The agent's decisions: orders in, work for the runner out; the runner's reports in, facts out.

An agent's life begins with its NodeJoined. Facts before it in the stream were addressed to an earlier life,
so they are folded without effects. Workers that the runner adopted go on in the new life; the orders that
they still need follow from the state at its beginning.
"""

from math import inf

from schemas.base import Event
from schemas.cluster import Node
from schemas.events import (
    GangFormed,
    NodeDrained,
    NodeJoined,
    Outcome,
    StartOrdered,
    StopOrdered,
    TurnsOrdered,
    WorkerEvent,
    WorkerStopped,
)
from schemas.ids import PlacementId
from schemas.placement import Mode
from schemas.questions import JoinAllReduce, OpenAllReduce, ReadOutput, Refused
from services.agent.folds import FOLDS, fold, gpus_wanted
from services.agent.gpu_health import GpuHealth
from services.agent.reports import effects_of
from services.agent.state import State, WorkerState
from services.agent.tasks import (
    ALL_WELL,
    AllReducesTimed,
    GpusSeen,
    Interrupted,
    LinesRead,
    ReadLines,
    Report,
    StartWorker,
    StopWorker,
    TimeAllReduces,
    TrainWorker,
    TurnWorker,
)
from shared.domain import gangs
from shared.domain.core import Asked, Effect, Effects, Input, MustEnd, Publish, Reply, Work, WorkFailed


class Superseded(MustEnd):
    """Another agent began a life on the node, so this one must end, with all that it runs."""


class Agent:
    """`life`: an id that is new at every start of the process.

    `leave_s`: seconds before the node's end to leave. `modes`, `workloads`, `runs_commands`, `residents_max`:
    what its runner can do, see `Runner`. `adopted`: workers of an earlier life that the runner found. `seen`:
    the GPUs at the start.
    """

    def __init__(
        self,
        node: Node,
        life: str,
        modes: frozenset[type[Mode]],
        workloads: tuple[str, ...] = (),
        *,
        runs_commands: bool = False,
        residents_max: int = 0,
        adopted: tuple[PlacementId, ...] = (),
        seen: GpusSeen = ALL_WELL,
        leave_s: float = 0.0,
    ) -> None:
        self.state = State()
        self._modes = modes
        self._workloads = workloads
        self._runs_commands = runs_commands
        self._residents_max = residents_max
        self._node = node
        self._life = life
        self._adopted = adopted
        self._leave_at = inf if node.until is None else node.until - leave_s
        """cluster time at which the node leaves; infinite: never, or its NodeDrained is published already"""
        self._early: list[Report | GpusSeen] = []
        """reports that came before this life's NodeJoined was read from the stream; handled once it is"""
        self._gpus = GpuHealth(node.node_id, seen)

    def handle(self, message: Input, now: float) -> Effects:
        """Handle a fact, a question, a report or the result of work. Raises Superseded."""
        match message:
            case Event() if type(message) in FOLDS:
                return self._handle_fact(message, now)
            case Asked():
                return [self._asked(message)]
            case AllReducesTimed() | LinesRead() | WorkFailed(TimeAllReduces() | ReadLines()):
                return [_reply(message)]
            case WorkFailed(StartWorker(order=order), reason):
                return self._report(Interrupted(order.placement_id, f"could not be started: {reason}"), now)
            case GpusSeen():
                return self._see_gpus(message, now)
            case _:
                return self._report(message, now) if isinstance(message, Report) else []

    def next_wakeup(self) -> float | None:
        due = min(self._leave_at, self._gpus.paused_until)
        return due if due < inf and self.state.life == self._life else None

    def wake(self, now: float) -> Effects:
        if self.state.life != self._life:
            return []
        effects = self._gpus.wake(now)
        if now < self._leave_at:
            return effects
        self._leave_at = inf
        drained = NodeDrained(at=now, node_id=self._node.node_id, life=self._life, reason="its time is over")
        return [*effects, Publish(drained)]

    def resume(self, now: float) -> Effects:
        joined = NodeJoined(
            at=now,
            node_id=self._node.node_id,
            node=self._node,
            life=self._life,
            workers=self._adopted,
            modes=tuple(sorted(mode.tag() for mode in self._modes)),
            workloads=self._workloads,
            runs_commands=self._runs_commands,
            residents_max=self._residents_max,
            withheld=self._gpus.first(self.state, self._adopted),
        )
        return [Publish(joined)]

    # ---- reports

    def _report(self, report: Report, now: float) -> Effects:
        if self.state.life != self._life:
            self._early.append(report)
            return []
        worker = self.state.workers.get(report.placement_id)
        if worker is None:
            return []
        judged = self._gpus.judged(worker, report)
        return [*effects_of(worker, judged, now), *self._gpus.heard(self.state, judged, now)]

    def _see_gpus(self, seen: GpusSeen, now: float) -> Effects:
        if self.state.life != self._life:
            self._early.append(seen)
            return []
        return self._gpus.seen(self.state, seen, now)

    # ---- questions

    def _asked(self, asked: Asked) -> Effect:
        """Answer a question about this node.

        All-reduces are timed on free GPUs only, so no job is disturbed.
        """
        match asked.question:
            case OpenAllReduce() | JoinAllReduce() as question if question.node_id == self._node.node_id:
                return self._time_all_reduces(asked.ticket, question)
            case ReadOutput(node_id=node_id) as question if node_id == self._node.node_id:
                return Work(ReadLines(asked.ticket, question))
            case _:
                reason = f"the agent of {self._node.node_id} answers for its own node"
                return Reply(asked.ticket, Refused(reason=reason))

    def _time_all_reduces(self, ticket: int, question: OpenAllReduce | JoinAllReduce) -> Effect:
        wanted = sum(gpus for node, gpus in question.ring.members if node.node_id == question.node_id)
        free = self.state.free()
        if 1 <= wanted <= len(free):
            return Work(TimeAllReduces(ticket, question, tuple(free)))
        return Reply(ticket, Refused(reason=f"{wanted} GPUs wanted, {len(free)} free"))

    # ---- orders

    def _handle_fact(self, fact: Event, now: float) -> Effects:
        was_mine = self.state.life == self._life
        changed = self._runs_mode_of(fact) and fold(self.state, fact)
        if self.state.life != self._life:
            if was_mine:
                raise Superseded(f"another agent stands for {self._node.node_id}")
            return []
        return self._obey(fact, now, changed=changed)

    def _obey(self, fact: Event, now: float, *, changed: bool) -> Effects:
        match fact:
            case NodeJoined() if changed:
                return self._begin(now)
            case NodeDrained() if changed:
                return [Work(StopWorker(placement_id)) for placement_id in self.state.workers]
            case StartOrdered():
                return self._start(fact, now, claimed=changed)
            case TurnsOrdered() | GangFormed() if changed:
                return [Work(_task_of(fact))]
            case StopOrdered():
                return self._stop(fact, now, changed=changed)
            case _:
                return []

    def _begin(self, now: float) -> Effects:
        """Give adopted workers the orders that they have missed, then handle the reports that were kept."""
        orders = [order for placement_id in self._adopted for order in self._orders_now(placement_id)]
        early, self._early = self._early, []
        reported = [effect for one in early for effect in self.handle(one, now)]
        return [*map(Work, orders), *reported]

    def _orders_now(self, placement_id: PlacementId) -> list[TrainWorker | TurnWorker | StopWorker]:
        worker = self.state.workers.get(placement_id)
        if worker is None or worker.state is WorkerState.STOPPING:  # None: its end is published already
            return [StopWorker(placement_id)]
        gang = worker.order.gang
        turns = [TurnWorker(placement_id, gang)] if gangs.rota(gang) else []
        if worker.state is WorkerState.TRAINING:
            return [*turns, TrainWorker(placement_id, worker.meeting)]
        return [*turns]

    def _start(self, order: StartOrdered, now: float, *, claimed: bool) -> Effects:
        if claimed and (why := self._gpus.why_no_start()):
            return [Publish(_stopped_without_worker(order, now, Outcome.REFUSED, why))]
        if claimed:
            indices = self.state.workers[order.placement_id].gpu_indices
            assert len(indices) == gpus_wanted(order), "a worker owns the GPUs of its order, all or none"
            return [Work(StartWorker(order, indices))]
        if order.placement_id in self.state.workers or order.placement_id in self.state.ended:
            return []
        return [Publish(_stopped_without_worker(order, now, Outcome.REFUSED, self._why_refused(order)))]

    def _runs_mode_of(self, fact: Event) -> bool:
        return not isinstance(fact, StartOrdered) or type(fact.gang.sync) in self._modes

    def _why_refused(self, order: StartOrdered) -> str:
        """Why the agent refuses an order to start; the reason in its WorkerStopped."""
        if not self._runs_mode_of(order):
            return f"the runner on {self._node.node_id} runs no {order.gang.mode} gangs"
        if self.state.leaving:
            return f"the time of {self._node.node_id} is over"
        free, kept = len(self.state.free()), len(self.state.withheld)
        return f"{gpus_wanted(order)} GPUs wanted, {free} free{f', {kept} withheld' if kept else ''}"

    def _stop(self, order: StopOrdered, now: float, *, changed: bool) -> Effects:
        if changed:
            return [Work(StopWorker(order.placement_id))]
        if order.placement_id in self.state.workers:
            return []
        # The placer believes that the worker runs, and waits for its end. If its end is published already,
        # this fact has the same id and is dropped.
        return [Publish(_stopped_without_worker(order, now, Outcome.CHECKPOINTED, "no such worker"))]


def _task_of(order: TurnsOrdered | GangFormed) -> TurnWorker | TrainWorker:
    match order:
        case TurnsOrdered(placement_id=placement_id, gang=gang):
            return TurnWorker(placement_id, gang)
        case GangFormed(placement_id=placement_id, meeting=meeting):
            return TrainWorker(placement_id, meeting)


def _reply(result: AllReducesTimed | LinesRead | WorkFailed) -> Reply:
    match result:
        case AllReducesTimed(ticket, answer) | LinesRead(ticket, answer):
            return Reply(ticket, answer)
        case WorkFailed(TimeAllReduces(ticket=ticket) | ReadLines(ticket=ticket), reason):
            return Reply(ticket, Refused(reason=reason))
    raise AssertionError(result)


def _stopped_without_worker(order: WorkerEvent, now: float, outcome: Outcome, reason: str) -> WorkerStopped:
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
