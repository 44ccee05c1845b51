"""How each fact changes the state. One function a fact, and the table of them at the end."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from schemas.accuracy import Execution
from schemas.base import Event
from schemas.events import (
    JobEvent,
    JobProfiled,
    JobQueued,
    JobSubmitted,
    JobTypeEstimated,
    JobTypeProfiled,
    NodeEvent,
    WorkerStopped,
)
from services.estimator.state import KnownJob, State
from shared.domain import accuracy
from shared.domain.nodes import NODE_FOLDS, fold_node, known_node
from shared.domain.states import ENDED, MOVES, IllegalMove, next_state

LOGGED = 100
"""executions that a snapshot holds; a start writes them to the store again"""


class Folded(NamedTuple):
    """What a fact changed."""

    moved: bool
    """whether the fact moved a job, as the table of states allows, or added a type to it"""
    execution: Execution | None
    """the execution that the fact ended"""


def fold(state: State, fact: Event) -> Folded:
    """Change `state` by one fact of `FOLDS`."""
    entry = _ENTRIES.get(type(fact))
    moved = entry is not None and entry(state, fact)
    execution = accuracy.fold(state.executions, fact)
    if execution is not None:
        state.logged = [*state.logged, execution][-LOGGED:]
    return Folded(moved, execution)


def _job(state: State, fact: JobEvent) -> bool:
    jobs, job_id = state.jobs, fact.job_id
    try:
        after = next_state(jobs[job_id].state if job_id in jobs else None, fact)
    except IllegalMove:
        return False
    if after in ENDED:
        del jobs[job_id]
    elif isinstance(fact, JobSubmitted):
        jobs[job_id] = KnownJob(spec=fact.spec)
    else:
        jobs[job_id].state = after
    if isinstance(fact, JobProfiled):
        jobs[job_id].modules = fact.modules
    elif isinstance(fact, JobQueued):
        jobs[job_id].types = frozenset(fact.single_gpu)
    return True


def _type_profiled(state: State, fact: JobTypeProfiled) -> bool:
    job = state.jobs.get(fact.job_id)
    if job is None or not job.modules:
        return False
    job.modules = job.modules | {fact.gpu_type: fact.modules}
    return True


def _type_estimated(state: State, fact: JobTypeEstimated) -> bool:
    if job := state.jobs.get(fact.job_id):
        job.types |= {fact.gpu_type}
    return False


def _node(state: State, fact: NodeEvent) -> bool:
    fold_node(state.nodes, fact, known_node)
    return False


_ENTRIES: Mapping[type[Event], Callable[[State, Any], bool]] = {
    **dict.fromkeys(MOVES, _job),
    **dict.fromkeys(NODE_FOLDS, _node),
    JobTypeProfiled: _type_profiled,
    JobTypeEstimated: _type_estimated,
}

FOLDS = frozenset({*_ENTRIES, *accuracy.FOLDS})
"""facts that change the state: of jobs and nodes by `_ENTRIES`, of executions by the shared fold"""

QUIET = frozenset(
    kind
    for kind in FOLDS
    if kind not in (JobProfiled, JobTypeProfiled, WorkerStopped) and not issubclass(kind, NodeEvent)
)
"""facts of `FOLDS` that neither queue a job nor end an execution, and are not about a node"""
