"""A stack whose machine's clock was ahead in the last run: cluster time does not go back, and jobs go on."""

import time
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from hopyard.actions.diagnose import Check, diagnose
from hopyard.actions.scenario import cluster_of
from hopyard.api.client import Client
from hopyard.api.connect import connect
from hopyard.local.credentials import account_of
from hopyard.local.data_folder import ClockFile
from hopyard.local.stack import Stack, running_stack
from hopyard.local.stack_settings import StackSpec
from loadgen.scenarios import load_scenario
from schemas.events import PolicyChosen
from shared.runtime.bus.jetstream import JetStreamBus
from tests.live.live_builders import QUICK, all_ended, submit_all
from tests.stack_watch import LIMIT_S, busy, until

pytestmark = pytest.mark.slow

HOUR_S = 3600.0


def spec_of(data: Path, origin: float) -> StackSpec:
    scenario = load_scenario("tiny")
    return StackSpec(
        data=data,
        cluster=cluster_of(scenario),
        clock_origin=origin,
        speed=QUICK,
        settings={**scenario.settings, "seed": 1},
    )


async def now_of(client: Client) -> float:
    await client.status()
    assert client.clock is not None
    return client.clock.now


async def clock_checked(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Check:
    monkeypatch.setenv("HOPYARD_API_TOKEN", stack.token)
    (found,) = [one for one in (await diagnose(stack.api_url, None, {})).checks if one.what == "clock"]
    return found


async def test_a_stack_whose_clock_went_back_goes_on_from_its_newest_fact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, origin, said = tmp_path / "data", time.time(), list[str]()
    async with (
        running_stack(spec_of(data, origin), said.append) as stack,
        connect(stack.api_url, stack.token) as client,
    ):
        jobs = await submit_all(client)
        await until(client, busy)
        before = await now_of(client)
    assert not any("cluster time goes on" in line for line in said)
    async with (
        running_stack(spec_of(data, time.time() + HOUR_S), said.append) as stack,
        connect(stack.api_url, stack.token) as client,
    ):
        assert before - QUICK <= await now_of(client) < before + LIMIT_S * QUICK
        await until(client, all_ended(jobs))
        assert (await clock_checked(stack, monkeypatch)).ok
    assert any("behind the newest fact: cluster time goes on from there" in line for line in said)
    kept = msgspec.json.decode((data / "clock.json").read_bytes(), type=ClockFile)
    assert kept.origin == pytest.approx(origin, abs=LIMIT_S)


async def test_a_cluster_time_behind_the_newest_fact_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_stack(spec_of(tmp_path / "data", time.time()), print) as stack:
        settings = replace(stack.settings(), nats_credentials=str(account_of(stack.data, "planner")))
        bus = await JetStreamBus.connect(settings, "planner", LIMIT_S)
        async with connect(stack.api_url, stack.token) as client:
            ahead = await now_of(client) + HOUR_S * QUICK
        await bus.publish([PolicyChosen(at=ahead, policy="fifo", by="test")])
        await bus.close()
        found = await clock_checked(stack, monkeypatch)
    assert not found.ok
    assert "behind the newest fact" in found.detail
