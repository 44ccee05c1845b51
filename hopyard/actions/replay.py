"""Submits a scenario's jobs to a running stack, each at its time."""

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import Sequence

import msgspec

from hopyard.api.client import ApiRefusal, Client
from hopyard.api.connect import connect, patiently
from hopyard.local.processes import Say
from hopyard.show.units import duration
from loadgen.replay import replay
from schemas.base import Message
from schemas.ids import JobId
from schemas.scenarios import Arrival
from shared.domain.states import ENDED
from shared.runtime.clock import ScaledClock

LOOK_EVERY_S = 0.5


class ReplaySpec(msgspec.Struct, frozen=True, kw_only=True):
    api_url: str
    arrivals: Sequence[Arrival]
    wait: bool
    """wait until every job has ended"""


class Replayed(Message, frozen=True, kw_only=True):
    submitted: int
    refused: int
    ended: dict[str, int]
    """number of jobs by the state in which they ended; empty unless they were waited for"""
    wall_s: float


async def run_replay(spec: ReplaySpec, say: Say) -> Replayed:
    """Raises Unreachable when the API, or the monitor, stays away for too long."""
    began = time.monotonic()
    async with connect(spec.api_url) as client:
        status = await patiently(client.status)
        say(f"replaying on {client.cluster or 'the cluster'} at {client.url}")
        submission = _Submission(client, len(spec.arrivals), say)
        await replay(spec.arrivals, submission.submit, ScaledClock(speed=status.speed))
        states = [await _end_of(client, job_id) for job_id in submission.jobs] if spec.wait else []
    return Replayed(
        submitted=len(submission.jobs),
        refused=submission.refused,
        ended=dict(Counter(states)),
        wall_s=time.monotonic() - began,
    )


class _Submission:
    """The outcomes of the arrivals so far. A refused job is counted, and the next one submitted."""

    def __init__(self, client: Client, total: int, say: Say) -> None:
        self.jobs: list[JobId] = []
        self.refused = 0
        self._client = client
        self._total = total
        self._say = say
        self._run = uuid.uuid4().hex

    async def submit(self, arrival: Arrival) -> None:
        number = len(self.jobs) + self.refused + 1
        try:
            submitted = await patiently(lambda: self._client.submit(arrival.job, f"{self._run}-{number}"))
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
            state = (await patiently(lambda: client.job(job_id))).state
        except ApiRefusal as refusal:  # so many jobs ended since then that this one is no longer kept
            if refusal.problem.state is None:
                raise
            return refusal.problem.state
        if state in ENDED:
            return state
        await asyncio.sleep(LOOK_EVERY_S)
