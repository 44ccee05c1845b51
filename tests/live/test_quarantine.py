"""Each service of a stack raises at a fact, in every life: it ends twice, passes it over, and goes on.

One stack for all, and the last test looks at the whole log.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import aiohttp
import msgspec
import pytest
import pytest_asyncio
from msgspec.structs import replace

from hopyard.actions.diagnose import diagnose
from hopyard.actions.quarantined import found_of
from hopyard.api.client import Client
from hopyard.api.connect import patiently
from hopyard.local.stack import Stack
from loadgen.scenarios import arrivals, load_scenario
from schemas.events import JobCompleted
from schemas.ids import JobId
from schemas.quarantine import Death
from schemas.views import Readiness
from shared.domain.audit import audit
from shared.runtime.bus.jetstream.connection import Connection
from tests.live.live_builders import QUICK, stack_and_client
from tests.stack_watch import LIMIT_S, Seconds, log_of

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

RAISES_AT = {
    "admission": "job.queued",
    "profiler": "job.cancelled",
    "estimator": "job.cancelled",
    "planner": "job.cancelled",
    "placer": "job.cancelled",
    "monitor": "job.cancelled",
    "agent": "worker.start-ordered",
}
"""none of them its own to tell: those it never passes over"""
START_TIMEOUT_S = 8.0
"""after which a job is placed again whose order to start was passed over"""


class Raising(NamedTuple):
    stack: Stack
    client: Client
    folder: Path
    jobs: dict[str, JobId]
    """at whose facts each service raised"""


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def raising(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Raising]:
    folder = tmp_path_factory.mktemp("raising")
    changes = pytest.MonkeyPatch()
    changes.setenv("PYTHONPATH", str(Path(__file__).parent / "raising"))
    changes.setenv("RAISING", str(folder))
    data = tmp_path_factory.mktemp("stack")
    async with stack_and_client(data, speed=QUICK, start_timeout_real_s=START_TIMEOUT_S) as (stack, client):
        changes.undo()
        yield Raising(stack, client, folder, {})


async def submitted(client: Client, name: str) -> JobId:
    job = replace(arrivals(load_scenario("tiny"), seed=1)[0].job, name=name)
    return (await patiently(lambda: client.submit(job, name))).job_id


async def passed_over(raising: Raising, service: str) -> tuple[str, Death]:
    """The process that did so (of agents there are several), once one has."""
    connection = Connection(raising.stack.settings(), "diag")
    await connection.open(LIMIT_S)
    names = [each for each in raising.stack.ports if each.startswith(service)]
    try:
        async with asyncio.timeout(LIMIT_S):
            while not (found := await found_of(connection, names)):
                await asyncio.sleep(0.2)
    finally:
        await connection.close()
    ((name, (death,)),) = found.items()
    return name, death


async def readiness(stack: Stack, name: str) -> Readiness:
    """What it answers once it is ready again."""
    url = f"{stack.scheme}://127.0.0.1:{stack.ports[name]}/readyz"
    async with asyncio.timeout(LIMIT_S), aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(url) as answer:
                    if answer.status == 200:
                        return msgspec.json.decode(await answer.read(), type=Readiness)
            except aiohttp.ClientError:
                pass  # it starts
            await asyncio.sleep(0.2)


def restarts(stack: Stack) -> dict[str, int]:
    return {one.program.name: one.restarts for one in stack.running}


@pytest.mark.parametrize("service", RAISES_AT)
async def test_a_fact_that_ends_a_service_twice_is_passed_over_and_reported(
    raising: Raising, service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack, client, folder, jobs = raising
    kind, name = RAISES_AT[service], f"poison-{service}"
    (folder / service).write_text(f"{kind} {name}-")
    before, struck = restarts(stack), Seconds()
    job_id = jobs[service] = await submitted(client, name)
    if kind == "job.cancelled":
        await patiently(lambda: client.cancel(job_id))
    process, death = await passed_over(raising, service)
    struck.say(f"{service} raises at a fact: passed over")
    assert (death.fact, death.deaths, death.passed_over) == (kind, 2, True)
    assert "ZeroDivisionError" in death.error
    ready = await readiness(stack, process)
    assert kind in {one.fact for view in ready.services for one in view.quarantined}
    monkeypatch.setenv("HOPYARD_API_TOKEN", stack.token)
    said = await diagnose(stack.api_url, stack.stack_file(), {})
    assert not said.well()
    assert any(f"passed over {death.seq} " in check.detail for check in said.checks if not check.ok)
    assert restarts(stack)[process] == before[process] + 2


async def test_after_all_that_jobs_complete_and_no_rule_is_broken(raising: Raising) -> None:
    """Those whose end nobody passed over: also the one whose first order to start an agent never obeyed."""
    client = raising.client
    after = [await submitted(client, f"after-{number}") for number in range(4)]

    async def completed() -> set[str]:
        return {event.job_id for event in await log_of(client) if isinstance(event, JobCompleted)}

    async with asyncio.timeout(LIMIT_S):
        while not {*after, raising.jobs["agent"]} <= await patiently(completed):
            await asyncio.sleep(0.5)
    assert audit(await log_of(client)) == []
