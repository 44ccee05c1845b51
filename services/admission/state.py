"""Admission's state: the state and key of every job, and the nodes that ever joined.

Of an ended job only its state, its key, its place in the stream and a digest of its spec are kept, so that
tens of thousands are a small snapshot.
"""

from hashlib import blake2b

import msgspec

from schemas.events import JobHeld, JobSubmitted
from schemas.ids import JobId, NodeId
from schemas.jobs import JobSpec
from schemas.views import HoldView
from shared.domain.nodes import KnownNode
from shared.domain.states import JobState


class OpenJob(msgspec.Struct):
    state: JobState
    key: str
    """in `keys`"""
    submitted: JobSubmitted | None
    """kept until the job is profiled: a user may ask for a job before the monitor knows it"""
    checkpoint_folder: str = ""
    """the folder that its spec names; empty: the job has one of its own"""
    user: str = ""
    project: str = ""
    preemptible: bool = True
    hold: HoldView | None = None
    """as long as `submitted` is kept; None: it is not on hold"""


class EndedJob(msgspec.Struct, frozen=True, array_like=True):
    state: JobState
    key: str
    seq: int = 0
    """stream sequence of the fact that ended it; 0: it ended under a version that did not keep this"""


class KeyedJob(msgspec.Struct, frozen=True, array_like=True):
    job_id: JobId
    digest: bytes
    """`digest_of` the spec that was submitted with the key"""
    user: str | None = None
    """the job's user; None: it was submitted under a version that did not keep this"""


class AdmissionState(msgspec.Struct):
    seq: int = 0
    """stream sequence of the last fact folded; the shell writes it"""
    submissions: int = 0
    open: dict[JobId, OpenJob] = {}
    ended: dict[JobId, EndedJob] = {}
    keys: dict[str, KeyedJob] = {}
    """by idempotency key, as `own_key` makes it"""
    nodes: dict[NodeId, KnownNode] = {}
    policy: str | None = None
    """the policy that was chosen while the stack ran; None: that of the settings"""
    illegal: int = 0
    """facts that were ignored because they cannot follow from the state of their job"""


def own_key(key: str, by: str) -> str:
    """The idempotency key together with its user, so that users who choose the same key do not collide.

    `by`: `user/token`, as facts name a caller. The token's name is left out, because a user may repeat a
    submission with a later token. Callers without a user share one set of keys.
    """
    user, _, _ = by.rpartition("/")
    return f"{user}\n{key}" if user else key  # no key has a line's end in it


def hold_by(fact: JobSubmitted | JobHeld) -> HoldView:
    return HoldView(at=fact.at, by=fact.by.rpartition("/")[0])


def keyed(fact: JobSubmitted) -> KeyedJob:
    return KeyedJob(fact.job_id, digest_of(fact.spec), fact.spec.user)


def digest_of(spec: JobSpec) -> bytes:
    """Eight bytes, equal for equal specs of any user.

    Fields that hold their default do not count, so a version that adds a field gives the same digest.
    """
    job = msgspec.to_builtins(spec)
    del job["user"]
    return blake2b(msgspec.msgpack.encode(job), digest_size=8).digest()


def job_state(state: AdmissionState, job_id: JobId) -> JobState | None:
    job = state.open.get(job_id) or state.ended.get(job_id)
    return job.state if job else None
