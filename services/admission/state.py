"""What admission remembers: the state of every job, who asked for it, and the nodes that ever joined.

An ended job keeps three words, its state, its key and a digest of what it asked for, so that tens of
thousands are a small snapshot.
"""

from hashlib import blake2b

import msgspec

from schemas.cluster import Node
from schemas.events import JobEvent, JobSubmitted
from schemas.ids import JobId, NodeId
from schemas.jobs import JobSpec
from shared.domain.states import ENDED, IllegalMove, JobState, next_state

ENDED_KEPT = 100_000
"""ended jobs: older ones are forgotten, and their idempotency keys with them"""


class OpenJob(msgspec.Struct):
    state: JobState
    key: str
    submitted: JobSubmitted | None
    """until the job is profiled: what a user may ask for before the monitor knows it"""


class EndedJob(msgspec.Struct, frozen=True, array_like=True):
    state: JobState
    key: str


class Keyed(msgspec.Struct, frozen=True, array_like=True):
    job_id: JobId
    digest: bytes
    """of what was asked for under the key"""


class AdmissionState(msgspec.Struct):
    seq: int = 0
    """stream sequence of the last fact folded; the shell writes it"""
    submissions: int = 0
    open: dict[JobId, OpenJob] = {}
    ended: dict[JobId, EndedJob] = {}
    keys: dict[str, Keyed] = {}
    nodes: dict[NodeId, Node] = {}
    policy: str | None = None
    """as chosen at run time"""
    illegal: int = 0
    """facts that found their job in a state they cannot follow from, and were ignored"""


def keyed(fact: JobSubmitted) -> Keyed:
    return Keyed(fact.job_id, digest_of(fact.spec))


def digest_of(spec: JobSpec) -> bytes:
    """Tells one job from another. A later version may read the same file as another job."""
    return blake2b(msgspec.msgpack.encode(spec), digest_size=8).digest()


def job_state(state: AdmissionState, job_id: JobId) -> JobState | None:
    job = state.open.get(job_id) or state.ended.get(job_id)
    return job.state if job else None


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
        job.state, job.submitted = after, None


def _begin(state: AdmissionState, fact: JobSubmitted) -> None:
    state.submissions += 1
    state.open[fact.job_id] = OpenJob(JobState.SUBMITTED, fact.key, fact)
    state.keys.setdefault(fact.key, keyed(fact))


def _end(state: AdmissionState, job_id: JobId, after: JobState, ended_kept: int) -> None:
    state.ended[job_id] = EndedJob(after, state.open.pop(job_id).key)
    while len(state.ended) > ended_kept:
        oldest = next(iter(state.ended))
        key = state.ended.pop(oldest).key
        if key in state.keys and state.keys[key].job_id == oldest:
            del state.keys[key]
