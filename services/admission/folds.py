"""How each fact changes the state: a function for each fact, and their table at the end."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from schemas.base import Event
from schemas.events import (
    JobEvent,
    JobHeld,
    JobPriorityChanged,
    JobReleased,
    JobSubmitted,
    NodeEvent,
    PolicyChosen,
)
from schemas.ids import JobId
from services.admission.state import AdmissionState, EndedJob, OpenJob, hold_by, job_state, keyed, own_key
from shared.domain.nodes import NODE_FOLDS, fold_node, known_node
from shared.domain.states import ENDED, MOVES, IllegalMove, JobState, next_state

ENDED_KEPT = 100_000
"""ended jobs that are kept; older ones are forgotten, with their idempotency keys"""


def fold(state: AdmissionState, fact: Event) -> None:
    """Change `state` by one fact of `FOLDS`."""
    FOLDS[type(fact)](state, fact)


def fold_job(state: AdmissionState, fact: JobEvent, *, ended_kept: int = ENDED_KEPT) -> None:
    """Move the job. A fact that the table of states does not allow is counted and changes nothing else."""
    try:
        after = next_state(job_state(state, fact.job_id), fact)
    except IllegalMove:
        state.illegal += 1
        return
    if isinstance(fact, JobSubmitted):
        _begin(state, fact)
    elif after in ENDED:
        _end(state, fact.job_id, after, ended_kept)
    else:
        job = state.open[fact.job_id]
        job.state, job.submitted, job.hold = after, None, None


def _begin(state: AdmissionState, fact: JobSubmitted) -> None:
    assert fact.job_id not in state.ended, "a job is submitted once"
    state.submissions += 1
    key, spec = own_key(fact.key, fact.by), fact.spec
    state.open[fact.job_id] = OpenJob(
        JobState.SUBMITTED, key, fact, spec.checkpoint_folder, spec.user, spec.project, spec.preemptible
    )
    state.open[fact.job_id].hold = hold_by(fact) if fact.on_hold else None
    state.keys.setdefault(key, keyed(fact))


def _end(state: AdmissionState, job_id: JobId, after: JobState, ended_kept: int) -> None:
    state.ended[job_id] = EndedJob(after, state.open.pop(job_id).key, state.seq)
    while len(state.ended) > ended_kept:
        oldest = next(iter(state.ended))
        key = state.ended.pop(oldest).key
        if key in state.keys and state.keys[key].job_id == oldest:
            del state.keys[key]


def _priority_changed(state: AdmissionState, fact: JobPriorityChanged) -> None:
    job = state.open.get(fact.job_id)
    if job is None:
        state.illegal += 1
    elif job.submitted is not None:
        spec = msgspec.structs.replace(job.submitted.spec, priority=fact.priority)
        job.submitted = msgspec.structs.replace(job.submitted, spec=spec)


def _held_or_released(state: AdmissionState, fact: JobHeld | JobReleased) -> None:
    job = state.open.get(fact.job_id)
    if job is None:
        state.illegal += 1
    elif isinstance(fact, JobReleased):
        job.hold = None
    elif job.submitted is not None:
        job.hold = job.hold or hold_by(fact)


def _node(state: AdmissionState, fact: NodeEvent) -> None:
    fold_node(state.nodes, fact, known_node)


def _policy(state: AdmissionState, fact: PolicyChosen) -> None:
    state.policy = fact.policy


FOLDS: Mapping[type[Event], Callable[[AdmissionState, Any], None]] = {
    **dict.fromkeys(MOVES, fold_job),
    **dict.fromkeys(NODE_FOLDS, _node),
    JobPriorityChanged: _priority_changed,
    JobHeld: _held_or_released,
    JobReleased: _held_or_released,
    PolicyChosen: _policy,
}
