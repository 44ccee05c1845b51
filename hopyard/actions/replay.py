"""Submits a scenario's jobs to a running stack, each at its time."""

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import Sequence

import msgspec

from hopyard.api.client import ApiRefusal, Client
from hopyard.api.connect import LONG_LIMIT_S, patiently, reach
from hopyard.failures import Invalid, Unreachable
from hopyard.local.processes import Say
from hopyard.show.units import duration
from loadgen.replay import replay
from schemas.base import Message
from schemas.ids import JobId
from schemas.scenarios import Arrival
from shared.domain.idempotency import key_fault
from shared.domain.states import ENDED
from shared.runtime.clock import ScaledClock

LOOK_EVERY_S = 0.5


class ReplaySpec(msgspec.Struct, frozen=True, kw_only=True):
    api: str | None
    """--api or HOPYARD_API_URL; None: this user's own stack"""
    arrivals: Sequence[Arrival]
    wait: bool
    """wait until every job has ended"""
    key: str | None = None
    """with a job's number, its idempotency key; None: one of this replay's own"""
    first: int = 1
    """number of the job to begin with, which is submitted at once"""


class Replayed(Message, frozen=True, kw_only=True):
    submitted: int
    refused: int
    ended: dict[str, int]
    """number of jobs by the state in which they ended; empty unless they were waited for"""
    wall_s: float


async def run_replay(spec: ReplaySpec, say: Say) -> Replayed:
    """Raises Unreachable when the API, or the monitor, stays away for too long, and Invalid."""
    _check_key(spec)
    if not 1 <= spec.first <= max(len(spec.arrivals), 1):
        raise Invalid(f"--from {spec.first}: there are {len(spec.arrivals)} jobs")
    began = time.monotonic()
    async with reach(spec.api) as client:
        status = await patiently(client.status)
        submission = _Submission(client, spec, say)
        say(f"replaying on {client.cluster or 'the cluster'} at {client.url}, --key {submission.key}")
        await replay(_from(spec), submission.submit, ScaledClock(speed=status.speed))
        states = [await _end_of(client, job_id) for job_id in submission.jobs] if spec.wait else []
    return Replayed(
        submitted=len(submission.jobs),
        refused=submission.refused,
        ended=dict(Counter(states)),
        wall_s=time.monotonic() - began,
    )


def _check_key(spec: ReplaySpec) -> None:
    """Raises Invalid if the longest of the jobs' keys cannot be one."""
    if spec.key and (fault := key_fault(_key(spec.key, len(spec.arrivals)))):
        raise Invalid(f"--key, with the number of a job behind it, {fault}")


def _key(key: str, number: int) -> str:
    """The idempotency key of a job."""
    return f"{key}-{number}"


def _from(spec: ReplaySpec) -> list[Arrival]:
    """The arrivals from the first one to submit, whose time is 0 if others came before it."""
    left = sorted(spec.arrivals, key=lambda one: one.at_s)[spec.first - 1 :]
    began = left[0].at_s if spec.first > 1 else 0.0
    return [msgspec.structs.replace(one, at_s=one.at_s - began) for one in left]


class _Submission:
    """The outcomes of the arrivals so far. A refused job is counted, and the next one submitted."""

    def __init__(self, client: Client, spec: ReplaySpec, say: Say) -> None:
        self.jobs: list[JobId] = []
        self.refused = 0
        self._client = client
        self._first, self._total = spec.first, len(spec.arrivals)
        self._say = say
        self.key = spec.key or uuid.uuid4().hex

    async def submit(self, arrival: Arrival) -> None:
        number = self._first + len(self.jobs) + self.refused
        try:
            submitted = await patiently(
                lambda: self._client.submit(arrival.job, _key(self.key, number)), LONG_LIMIT_S
            )
        except Unreachable as gone:
            raise Unreachable(
                f"{gone}; job {number} of {self._total} may be stored all the same: "
                f"the same command goes on with --key {self.key} --from {number}"
            ) from None
        except ApiRefusal as refusal:
            self.refused += 1
            outcome = f"refused: {refusal}"
        else:
            self.jobs.append(submitted.job_id)
            outcome = submitted.job_id
        self._say(f"{duration(arrival.at_s):>8}  {number}/{self._total}  {arrival.job.name}  {outcome}")


async def _end_of(client: Client, job_id: JobId) -> str:
    """The state in which the job ended, once it has."""
    while True:
        try:
            state = (await patiently(lambda: client.job(job_id), LONG_LIMIT_S)).state
        except ApiRefusal as refusal:  # so many jobs ended since then that this one is no longer kept
            if refusal.problem.state is None:
                raise
            return refusal.problem.state
        if state in ENDED:
            return state
        await asyncio.sleep(LOOK_EVERY_S)
