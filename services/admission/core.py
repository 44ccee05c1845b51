"""Admission's decisions: which submission becomes a job, which job may be cancelled, which policy is chosen.

Facts move jobs through the table of states; questions come from the HTTP API. The core remembers each
submission from its publication until the stream brings it back, so that two submissions in flight cannot get
the same number or key.
"""

from collections.abc import Sequence

import msgspec

from schemas.base import Event, Message, Question
from schemas.cluster import Node
from schemas.codec import decode_fact, encode_plain
from schemas.events import (
    JobCancelled,
    JobHeld,
    JobPriorityChanged,
    JobReleased,
    JobSubmitted,
    NodeDrained,
    NodeEvent,
    NodeRemoved,
    NodeRestored,
    PolicyChosen,
)
from schemas.ids import GpuType, JobId, NodeId
from schemas.questions import HandedOn, Refused
from schemas.settings import Settings
from schemas.tokens import Identity, Role
from schemas.views import (
    Cancelled,
    JobHold,
    JobPriority,
    JobView,
    NodeDrain,
    NodeRemoval,
    PolicyChoice,
    PolicyPage,
    Problem,
    Submitted,
)
from services.admission import problems
from services.admission.folds import FOLDS, fold
from services.admission.questions import (
    Cancel,
    RemoveNode,
    SetDrain,
    SetHold,
    SetPolicy,
    SetPriority,
    ShowFresh,
    ShowPolicies,
    ShowPolicy,
    Submit,
    SubmitHeld,
    handed_back,
    taken_over,
)
from services.admission.state import AdmissionState, KeyedJob, digest_of, hold_by, job_state, keyed, own_key
from services.admission.validation import accepted_spec, check_folder
from shared.domain.cluster import gpus_by_type
from shared.domain.core import Asked, Effect, Effects, Input, Publish, Reply
from shared.domain.demand import job_spec
from shared.domain.invalid_job import InvalidJob
from shared.domain.policy_names import AcceptedPolicies, parted
from shared.domain.states import ENDED, JobState

ONLY_HOPS = AcceptedPolicies(("hops",))

QUESTIONS_WAITING_MAX = 10_000
"""questions that may wait while the core catches up"""


class CaughtUp(msgspec.Struct, frozen=True):
    """An input: every submission that was stored before this start is folded.

    A service resumes at its cursor, a little before the end of the stream. If it answered before it has read
    the rest, it would not recognise a repeated idempotency key, and could give a new job an id that is taken.
    So questions wait.
    """


class KnownCluster(msgspec.Struct, frozen=True):
    """What is known of the cluster when a job is judged."""

    gpus: dict[GpuType, int]
    """number of GPUs of each type"""
    workloads: frozenset[str]
    """what the nodes can train; empty: anything"""
    command_nodes: Sequence[NodeId]


Answer = tuple[Message, list[Event]]
"""the reply, and the facts to store before it is sent"""


class Admission:
    """The core (`shared.domain.core`). `nodes`: of the cluster file; `policies`: those that can be chosen."""

    def __init__(
        self, settings: Settings, *, nodes: Sequence[Node] = (), policies: AcceptedPolicies = ONLY_HOPS
    ) -> None:
        self.state = AdmissionState()
        self._settings = settings
        self._nodes = {node.node_id: node for node in nodes}
        self._policies = policies
        self._in_flight: dict[str, JobSubmitted] = {}
        """by key, as `own_key` makes it: submissions that are published and not yet back from the stream"""
        self._number = 0
        """the number in the newest job id"""
        self._caught_up = False
        self._waiting: list[Asked] = []
        self._known: KnownCluster | None = None
        """None: to be computed again, since a fact about nodes came"""

    def handle(self, message: Input, now: float) -> Effects:
        match message:
            case Asked():
                return self._asked(message, now)
            case CaughtUp():
                return self._catch_up()
            case Event() if type(message) in FOLDS:
                self._learn(message)
            case _:
                pass
        return []

    def next_wakeup(self) -> float | None:
        return None

    def wake(self, now: float) -> Effects:  # noqa: ARG002 - the contract's
        return []

    def resume(self, now: float) -> Effects:  # noqa: ARG002 - the contract's
        """Nothing is to be repeated, since callers from before the restart are gone."""
        return []

    # ---- facts

    def _learn(self, fact: Event) -> None:
        fold(self.state, fact)
        if isinstance(fact, NodeEvent):
            self._known = None
        if isinstance(fact, JobSubmitted):
            self._in_flight.pop(own_key(fact.key, fact.by), None)

    # ---- questions

    def _asked(self, asked: Asked, now: float) -> Effects:
        if self._caught_up:
            return self._reply(asked, now)
        if len(self._waiting) >= QUESTIONS_WAITING_MAX:
            return [Reply(asked.ticket, problems.unavailable("admission is starting"))]
        self._waiting.append(asked)
        return []

    def _catch_up(self) -> Effects:
        """Take the questions that waited one by one, so that an error at one is that question's alone."""
        self._caught_up = True
        waiting, self._waiting = self._waiting, []
        return [*waiting]

    def _reply(self, asked: Asked, now: float) -> Effects:
        message, facts = self._message(asked.question, now)
        effects: list[Effect] = [Publish(fact) for fact in facts]
        return [*effects, Reply(asked.ticket, message)]

    def _message(self, question: Question, now: float) -> Answer:
        if not isinstance(question, HandedOn):
            return self._checked(question, now)
        try:
            own = taken_over(question)
        except msgspec.DecodeError as error:
            reason = f"unreadable question of an admission of another version: {error}"
            return Refused(reason=reason, passing=True), []
        message, facts = self._checked(own, now)
        return handed_back(message), facts

    def _checked(self, question: Question, now: float) -> Answer:
        """The answer, or a refusal if a fact of it could not be read back: nobody would ever learn of it."""
        message, facts = self._answer(question, now)
        try:
            for fact in facts:
                decode_fact(encode_plain(fact))
        except (ValueError, OverflowError) as error:  # of values that MessagePack has not, or Malformed
            return problems.invalid("$", f"this cannot be stored: {error}"), []
        submitted = [fact for fact in facts if isinstance(fact, JobSubmitted)]
        self._in_flight |= {own_key(fact.key, fact.by): fact for fact in submitted}
        return message, facts

    def _answer(self, question: Question, now: float) -> Answer:  # noqa: C901, PLR0911 - one a question
        match question:
            case Submit():
                return self._submit(question, now)
            case Cancel():
                return self._cancel(question, now)
            case SetPriority():
                return self._set_priority(question, now)
            case SetHold():
                return self._hold(question, now)
            case SetDrain():
                return self._drain(question, now)
            case RemoveNode():
                return self._remove(question, now)
            case SetPolicy():
                return self._set_policy(question, now)
            case ShowPolicy():
                return PolicyChoice(policy=self.state.policy or self._settings.policy), []
            case ShowPolicies():
                return PolicyPage(policies=self._policies.names()), []
            case ShowFresh():
                return self._show(question, now), []
            case _:
                return Refused(reason=f"admission does not answer {type(question).__name__}"), []

    def _submit(self, asked: Submit, now: float) -> Answer:
        refusal = _foreign_field(asked)
        if refusal is not None:
            return refusal, []
        key = own_key(asked.key, asked.caller.name)
        pending = self._in_flight.get(key)
        known = self.state.keys.get(key) if pending is None else keyed(pending)
        if known is not None:
            # A submission in flight is published again, which delays the reply until it is stored.
            return _reply_to_repeat(asked, known), [pending] if pending else []
        if len(self.state.open) + len(self._in_flight) >= self._settings.jobs_open_max:
            reason = f"{self._settings.jobs_open_max} jobs have not ended, as many as jobs_open_max allows"
            return problems.too_many(f"{reason}; submit again when one has"), []
        try:
            cluster = self._cluster()
            spec = accepted_spec(
                msgspec.structs.replace(asked.job, user=asked.job.user or asked.caller.user),
                cluster.gpus,
                self._settings.gpus_per_job_max,
                workloads=cluster.workloads,
                commanded=cluster.command_nodes,
            )
            if spec.checkpoint_folder:
                check_folder(spec.checkpoint_folder, self._checkpoint_folders())
        except InvalidJob as invalid:
            return problems.invalid(invalid.field, invalid.reason), []
        job_id, by = self._new_id(spec.name), asked.caller.name
        fact = JobSubmitted(
            at=now, job_id=job_id, spec=spec, key=asked.key, by=by, on_hold=isinstance(asked, SubmitHeld)
        )
        return Submitted(job_id=job_id, created=True), [fact]

    def _checkpoint_folders(self) -> dict[JobId, str]:
        """The checkpoint folders that unfinished jobs name."""
        named = {job_id: job.checkpoint_folder for job_id, job in self.state.open.items()}
        return named | {fact.job_id: fact.spec.checkpoint_folder for fact in self._in_flight.values()}

    def _cluster(self) -> KnownCluster:
        """The cluster file's nodes and every node that joined, also a lost one, unless it was removed."""
        if self._known is None:
            known = {node_id: one.whole for node_id, one in self.state.nodes.items() if not one.removed}
            nodes = self._to_join() | known
            self._known = KnownCluster(gpus_by_type(nodes.values()), self._workloads(), self._commanded())
        return self._known

    def _to_join(self) -> dict[NodeId, Node]:
        """The cluster file's nodes that have not joined yet."""
        return {node_id: node for node_id, node in self._nodes.items() if node_id not in self.state.nodes}

    def _workloads(self) -> frozenset[str]:
        """What the nodes can train; empty: a node can train anything, or has not joined yet."""
        named = [frozenset(known.workloads) for known in self.state.nodes.values() if not known.removed]
        if not all(named) or self._to_join():
            return frozenset()
        return frozenset().union(*named)

    def _commanded(self) -> Sequence[NodeId]:
        """The nodes on which jobs are processes; lost ones too, which may return."""
        nodes = self.state.nodes.items()
        return sorted(node_id for node_id, known in nodes if known.runs_commands and not known.removed)

    def _new_id(self, name: str) -> JobId:
        self._number = max(self._number, self.state.submissions)
        while True:
            self._number += 1
            job_id = JobId(f"{name}-{self._number}")
            if job_state(self.state, job_id) is None:  # taken only if another admission published it
                return job_id

    def _state_of(self, job_id: JobId) -> JobState | None:
        pending = any(fact.job_id == job_id for fact in self._in_flight.values())
        return JobState.SUBMITTED if pending else job_state(self.state, job_id)

    def _cancel(self, asked: Cancel, now: float) -> Answer:
        job_id, caller = asked.job_id, asked.caller
        refusal = self._out_of_reach(job_id, caller, "cancel it")
        if refusal is not None:
            return refusal, []
        return Cancelled(job_id=job_id), [JobCancelled(at=now, job_id=job_id, by=caller.name)]

    def _set_priority(self, asked: SetPriority, now: float) -> Answer:
        job_id, caller, priority = asked.job_id, asked.caller, asked.priority
        refusal = self._out_of_reach(job_id, caller, "change its priority")
        if refusal is not None:
            return refusal, []
        return JobPriority(job_id=job_id, priority=priority), [
            JobPriorityChanged(at=now, job_id=job_id, priority=priority, by=caller.name)
        ]

    def _hold(self, asked: SetHold, now: float) -> Answer:
        job_id, caller = asked.job_id, asked.caller
        refusal = self._out_of_reach(job_id, caller, "hold it" if asked.held else "release it")
        if refusal is not None:
            return refusal, []
        job = self.state.open.get(job_id)
        if asked.held and job is not None and job.state is JobState.RUNNING and not job.preemptible:
            reason = f"job {job_id} runs and is not preemptible, so it keeps its GPUs to its end"
            return problems.conflict(reason), []
        kind = JobHeld if asked.held else JobReleased
        reply = JobHold(job_id=job_id, held=asked.held)
        return reply, [kind(at=now, job_id=job_id, by=caller.name)]

    def _out_of_reach(self, job_id: JobId, caller: Identity, deed: str) -> Problem | None:
        """Why the caller cannot do this to the job: it is unknown or has ended, or is not the caller's."""
        state = self._state_of(job_id)
        if state is None:
            return problems.unknown(f"job {job_id}")
        if state in ENDED:
            return problems.conflict(f"job {job_id} has ended already: it is {state}")
        user, project = self._owner(job_id)
        if caller.role is not Role.OPERATOR and user != caller.user:
            owner = f"belongs to {user}" if user else "belongs to no user"
            return problems.forbidden(f"job {job_id} {owner}; its user or an operator may {deed}")
        if caller.project and project != caller.project:
            return problems.forbidden(
                f"job {job_id} is not in the project {caller.project}, the only one that the token is for"
            )
        return None

    def _owner(self, job_id: JobId) -> tuple[str, str]:
        """User and project of a job that has not ended."""
        pending = next((fact.spec for fact in self._in_flight.values() if fact.job_id == job_id), None)
        job = pending or self.state.open[job_id]
        return job.user, job.project

    def _drain(self, asked: SetDrain, now: float) -> Answer:
        known = self.state.nodes.get(asked.node_id)
        if known is None or known.removed:
            return problems.unknown(f"node {asked.node_id}"), []
        kind = NodeDrained if asked.draining else NodeRestored
        reply = NodeDrain(node_id=asked.node_id, draining=asked.draining)
        return reply, [kind(at=now, node_id=asked.node_id, by=asked.caller.name)]

    def _remove(self, asked: RemoveNode, now: float) -> Answer:
        known = self.state.nodes.get(asked.node_id)
        if known is None or known.removed:
            return problems.unknown(f"node {asked.node_id}"), []
        if known.alive:
            reason = f"node {asked.node_id} is not lost: stop its agent, and wait until it is"
            return problems.conflict(reason), []
        return NodeRemoval(node_id=asked.node_id), [
            NodeRemoved(at=now, node_id=asked.node_id, by=asked.caller.name)
        ]

    def _set_policy(self, asked: SetPolicy, now: float) -> Answer:
        """Check the policy's name. If its code has to judge it, the API has asked the planner before."""
        policy = asked.policy
        try:
            refusal = self._policies.refusal(parted(policy).name)
        except ValueError as error:
            refusal = str(error)
        if refusal is not None:
            return problems.invalid("$.policy", refusal), []
        return PolicyChoice(policy=policy), [PolicyChosen(at=now, policy=policy, by=asked.caller.name)]

    def _show(self, asked: ShowFresh, now: float) -> Message:
        """The job as submitted, kept until it is profiled, since the monitor may not know it before."""
        job_id = asked.job_id
        job = self.state.open.get(job_id)
        fresh, hold = (job.submitted, job.hold) if job else (None, None)
        if fresh is None:
            fresh = next((fact for fact in self._in_flight.values() if fact.job_id == job_id), None)
            hold = hold_by(fresh) if fresh is not None and fresh.on_hold else None
        if fresh is not None:
            return JobView(
                job_id=job_id,
                state=JobState.SUBMITTED,
                spec=fresh.spec,
                submitted_at=fresh.at,
                wait_s=(hold.at if hold else now) - fresh.at,
                hold=hold,
            )
        ended = self.state.ended.get(job_id)
        if ended is not None and ended.seq <= asked.monitor_seq > 0:
            return problems.forgotten(job_id, ended.state)
        return problems.behind(job_id) if job or ended else problems.unknown(f"job {job_id}")


def _foreign_field(asked: Submit) -> Problem | None:
    """Why the submitter may not name this user or project for the job; an operator may name any."""
    job, caller = asked.job, asked.caller
    if caller.role is not Role.OPERATOR and job.user not in ("", caller.user):
        owner = f"belongs to {caller.user}" if caller.user else "has no user"
        reason = f"the token {owner}; only an operator submits jobs of {job.user}"
        return problems.forbidden(reason, "$.user")
    if caller.project and job.project != caller.project:
        return problems.forbidden(f"the token is for the project {caller.project} only", "$.project")
    return None


def _reply_to_repeat(asked: Submit, known: KeyedJob) -> Message:
    """The reply for a repeated key: the job submitted with it before, or a problem if the jobs differ."""
    user = asked.job.user or asked.caller.user
    try:
        same = known.user in (None, user) and digest_of(job_spec(asked.job)) == known.digest
    except InvalidJob:
        same = False
    if same:
        return Submitted(job_id=known.job_id, created=False)
    return problems.key_taken(asked.key, known.job_id)
