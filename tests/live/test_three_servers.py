"""Three NATS servers under a stack of processes: that which leads the stream is lost, and submissions go on.

NATS takes four to nine seconds to elect another leader, from the last that the others heard of the old one.
Submissions do not wait for it. Seconds are printed. `NATS_TRIES` has each server fault come more often.
"""

import asyncio
import contextlib
import itertools
import os
import signal
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import partial

import msgspec
import nats
import pytest
import pytest_asyncio
from nats.aio.client import Client as Nats

from hopyard.api.client import Client
from hopyard.api.connect import patiently
from hopyard.local.credentials import account_of
from hopyard.local.stack import Stack
from loadgen.scenarios import arrivals, load_scenario
from schemas.events import JobCompleted, JobQueued, JobSubmitted
from schemas.ids import JobId
from schemas.subjects import FACTS_STREAM
from shared.domain.audit import audit
from shared.runtime.bus.accounts import OPERATOR, inbox_of
from shared.runtime.process.nats_server import NatsServer
from tests import stack_watch
from tests.live.live_builders import stack_and_client
from tests.live.nats_leaders import Leaders, until
from tests.processes import LEAVES_OPEN, standing_still
from tests.stack_watch import LIMIT_S, log_of

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module"), LEAVES_OPEN]

TRIES = int(os.environ.get("NATS_TRIES", "1"))
EVERY_S = 0.3
"""between two submissions"""
LOOK_S = 0.05
SHORT = 0.02
"""of the work of the scenario's jobs"""


class Submitting:
    """Somebody who submits one short job after the other, and what was acknowledged, when."""

    def __init__(self, stack: Stack, client: Client, eyes: Nats) -> None:
        self.stack = stack
        self.client = client
        self.acknowledged: list[JobId] = []
        self.at: list[float] = []
        self.leaders = Leaders(stack.nats, eyes.jetstream(timeout=0.3))
        self._jobs = itertools.cycle([arrival.job for arrival in arrivals(load_scenario("tiny"), seed=1)])
        self._task = asyncio.create_task(self._submit())

    async def _submit(self) -> None:
        for number in itertools.count():
            job = next(self._jobs)
            assert job.samples is not None
            short = msgspec.structs.replace(job, samples=job.samples * SHORT)
            submit = partial(self.client.submit, short, f"key-{number}")
            done = await patiently(submit, LIMIT_S)
            self.acknowledged.append(done.job_id)
            self.at.append(time.monotonic())
            await asyncio.sleep(EVERY_S)

    async def more(self, count: int) -> None:
        """Wait until so many more are acknowledged."""
        goal = len(self.acknowledged) + count
        await self._until(lambda: len(self.acknowledged) >= goal)

    async def _until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not holds():
                if self._task.done():
                    self._task.result()
                await asyncio.sleep(LOOK_S)

    async def queued_after(self, first: int) -> None:
        """Wait until one of the jobs from there on is queued: three services have worked again."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                events = await patiently(lambda: log_of(self.client), LIMIT_S)
                queued = {event.job_id for event in events if isinstance(event, JobQueued)}
                if queued & set(self.acknowledged[first:]):
                    return
                await asyncio.sleep(LOOK_S)

    async def end(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def submitting(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Submitting]:
    async with stack_and_client(tmp_path_factory.mktemp("stack"), nats_servers=3) as (stack, client):
        own = msgspec.json.decode(account_of(stack.data, OPERATOR).read_bytes(), type=dict[str, str])
        eyes = await nats.connect(
            [server.url for server in stack.nats.each],
            **own,
            inbox_prefix=inbox_of(OPERATOR).encode(),
            ping_interval=1,
            reconnect_time_wait=0.1,
            max_reconnect_attempts=-1,
        )
        found = Submitting(stack, client, eyes)
        await found.more(3)
        try:
            yield found
        finally:
            await found.end()
            await eyes.close()


def stopped(server: NatsServer) -> contextlib.AbstractContextManager[None]:
    return standing_still(server.pid)


@contextlib.contextmanager
def killed(server: NatsServer) -> Iterator[None]:
    """The stack starts it again by itself."""
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    yield


@pytest.mark.parametrize("lost", [killed, stopped])
async def test_submissions_go_on_when_the_server_that_leads_the_stream_is_lost(
    submitting: Submitting, lost: Callable[[NatsServer], contextlib.AbstractContextManager[None]]
) -> None:
    waits: list[float] = []
    for _ in range(TRIES):
        await until(submitting.leaders.whole)
        await until(submitting.leaders.apart)
        server = await until(lambda: submitting.leaders.of(FACTS_STREAM))
        assert server is not None
        first, began = len(submitting.acknowledged), time.monotonic()
        with lost(server):
            await until(lambda: submitting.leaders.of(FACTS_STREAM))
            elected_s = time.monotonic() - began
            await submitting.more(2)
            waits.append(next(at for at in submitting.at[first:] if at > began + LOOK_S) - began)
            assert waits[-1] < elected_s
            await submitting.queued_after(first + 1)
            worked_s = time.monotonic() - began
        print(
            f"{lost.__name__}: NATS had a leader after {elected_s:.1f} s, a submission was acknowledged "
            f"after {waits[-1]:.1f} s, a job was queued after {worked_s:.1f} s"
        )
    print(f"{lost.__name__}: median of {len(waits)}: {statistics.median(waits):.1f} s")


async def test_after_all_that_no_acknowledged_job_is_lost_and_no_rule_is_broken(
    submitting: Submitting,
) -> None:
    await submitting.end()
    acknowledged = set(submitting.acknowledged)
    await stack_watch.until(submitting.client, lambda status: all_completed(status.jobs))
    events = await patiently(lambda: log_of(submitting.client), LIMIT_S)
    assert acknowledged <= {event.job_id for event in events if isinstance(event, JobCompleted)}
    submitted = [event.job_id for event in events if isinstance(event, JobSubmitted)]
    assert len(set(submitted)) == len(submitted)
    assert audit(events) == []


def all_completed(jobs: Mapping[str, int]) -> bool:
    return not any(count for state, count in jobs.items() if state != "completed")
