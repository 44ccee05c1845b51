"""NATS killed and kept from coming back: the API listens and says why, and then all goes on by itself."""

import asyncio
import os
import signal
from collections.abc import Callable, Collection
from pathlib import Path

import aiohttp
import pytest

from hopyard.actions.diagnose import diagnose
from hopyard.local.nats_supervision import AWAY, THERE
from hopyard.local.stack import Stack
from hopyard.local.stack_settings import SERVICES
from schemas.events import JobSubmitted
from schemas.views import ServiceState, StatusView
from shared.domain.audit import audit
from shared.runtime.bus.jetstream.connection import AWAY as NO_CONNECTION
from shared.runtime.process import nats_server
from shared.runtime.process.web import WAITS
from tests.live.live_builders import all_ended, stack_and_client, submit_all
from tests.live.test_faults import GOOD, pid_of
from tests.live.test_full_disk import accepted
from tests.stack_watch import LIMIT_S, Seconds, busy, log_of, until

pytestmark = pytest.mark.slow

ALIVE, UNAVAILABLE = 200, 503
NOT_BACK = AWAY.split("{}")[1]
ASKED = (("GET", "/readyz"), ("GET", "/v1/status"), ("POST", "/v1/jobs"))


async def refusals(stack: Stack) -> dict[str, str]:
    """Why each request is refused; each gets an answer, with when to come again."""
    headers = {"Content-Type": "application/yaml", "Authorization": f"Bearer {stack.token}"}
    why: dict[str, str] = {}
    async with aiohttp.ClientSession(headers=headers) as session:
        for method, path in ASKED:
            body = GOOD if method == "POST" else None
            async with session.request(method, stack.api_url + path, data=body) as answer:
                assert (answer.status, answer.headers.get("Retry-After")) == (UNAVAILABLE, "2"), path
                why[path] = (await answer.json(content_type="application/problem+json"))["detail"]
    return why


async def until_refused(stack: Stack, fine: Callable[[dict[str, str]], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not fine(await refusals(stack)):
            await asyncio.sleep(0.2)


async def test_while_nats_does_not_come_back_the_api_says_so_and_then_all_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (no_server := tmp_path / "nats-server").write_text("#!/bin/sh\nexit 1\n")
    no_server.chmod(0o755)
    said: list[str] = []
    async with stack_and_client(tmp_path / "data", say=said.append) as (stack, client):
        count = await submit_all(client)
        await until(client, busy)
        with monkeypatch.context() as patch:
            patch.setattr(nats_server, "_executable", lambda: str(no_server))
            for server in stack.nats.each:
                assert server.pid is not None
                os.kill(server.pid, signal.SIGKILL)
            await until_refused(stack, lambda why: all(NO_CONNECTION in one for one in why.values()))
            monkeypatch.setenv("HOPYARD_API_TOKEN", stack.token)
            found = await diagnose(stack.api_url, stack.stack_file(), {})
            api, nats, *_ = found.checks
            assert not found.reachable
            assert not nats.ok
            assert NO_CONNECTION in api.detail
            os.killpg(pid_of(stack, "admission"), signal.SIGKILL)
            await until_restarted(stack, "admission")
            await until_refused(stack, lambda why: set(why.values()) == {WAITS})
            found = await diagnose(stack.api_url, stack.stack_file(), {})
            assert f"lives and is not ready: {WAITS}" in next(
                check.detail for check in found.checks if check.what == "admission"
            )
        back = Seconds()
        acknowledged = await accepted(stack)
        back.say("NATS may come back: the next submission acknowledged")
        await until(client, all_ended(count + 1))
        facts = await log_of(client)
        restarts = {one.program.name: one.restarts for one in stack.running if one.restarts}
    assert audit(facts) == []
    assert acknowledged in [fact.job_id for fact in facts if isinstance(fact, JobSubmitted)]
    assert restarts == {"admission": 1}, "and nothing else was started again"
    assert (sum(NOT_BACK in line for line in said), said.count(THERE)) == (1, 1), "said once each"


async def test_once_nats_has_started_again_every_service_can(tmp_path: Path) -> None:
    """All but admission waited for ever for a stream in memory, which admission makes at its start alone."""
    async with stack_and_client(tmp_path / "data") as (stack, client):
        count = await submit_all(client, most=2)
        before = [server.pid for server in stack.nats.each]
        for pid in before:
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(LIMIT_S):
            while not stack.nats.ready() or before == [server.pid for server in stack.nats.each]:
                await asyncio.sleep(0.1)
        killed = [name for name in SERVICES if name != "admission"]
        for name in killed:
            os.killpg(pid_of(stack, name), signal.SIGKILL)
        back = Seconds()
        await until(client, lambda status: all_up(status, again=killed))
        back.say("NATS has started again, and all services but admission were killed: all up")
        await until(client, all_ended(count))
        assert audit(await log_of(client)) == []


def all_up(status: StatusView, again: Collection[str]) -> bool:
    """And these have started again."""
    up = {one.name: one for one in status.services if one.state is ServiceState.UP}
    return up.keys() == set(SERVICES) and all(up[name].restarts for name in again)


async def until_restarted(stack: Stack, name: str) -> None:
    """And until it listens: with nobody there a connection is refused."""
    (one,) = [running for running in stack.running if running.program.name == name]
    async with asyncio.timeout(LIMIT_S), aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(f"{stack.api_url}/healthz") as answer:
                    if one.restarts and answer.status == ALIVE:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.2)
