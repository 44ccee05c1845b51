"""The stream of facts over HTTP, and the forwarding of requests to the core."""

import asyncio
import contextlib
from typing import Any

import msgspec
import pytest
from aiohttp import ClientResponse

from schemas.settings import Settings
from services.admission.http.forwarding import Forwarding
from shared.runtime.bus.contract import Unavailable
from shared.runtime.bus.memory import Faults, MemoryBus
from shared.runtime.clock import LoopClock
from shared.runtime.service import Inbox
from tests.services.admission.admission_world import (
    Driver,
    Served,
    job_body,
    job_facts,
    joined,
    serving,
    submitted,
)

FACTS = [joined("n-0"), *job_facts("train-1"), *job_facts("train-2")]


async def lines(api: Served, query: str = "") -> list[dict[str, Any]]:
    async with api.client.get(f"/v1/events{query}") as response:
        assert response.headers["Content-Type"] == "application/x-ndjson"
        return [msgspec.json.decode(each) for each in (await response.read()).splitlines()]


async def one_line(response: ClientResponse) -> dict[str, Any]:
    line = await asyncio.wait_for(response.content.readline(), 60.0)
    decoded: dict[str, Any] = msgspec.json.decode(line)
    return decoded


async def test_all_facts_are_listed_in_order() -> None:
    async with serving() as api:
        await api.bus.publish(FACTS)
        listed = await lines(api)
        assert [each["seq"] for each in listed] == list(range(1, len(FACTS) + 1))
        assert [each["event"]["fact"] for each in listed] == [fact.tag() for fact in FACTS]


async def test_an_empty_stream_has_no_lines() -> None:
    async with serving() as api:
        assert await lines(api) == []


async def test_facts_of_one_job_are_listed() -> None:
    async with serving() as api:
        await api.bus.publish(FACTS)
        listed = await lines(api, "?job=train-2")
        assert {each["event"]["job_id"] for each in listed} == {"train-2"}
        assert len(listed) == len(job_facts())


async def test_reading_goes_on_after_the_last_line() -> None:
    async with serving() as api:
        await api.bus.publish(FACTS)
        first = await lines(api, "?limit=5")
        assert len(first) == 5
        rest = await lines(api, f"?after={first[-1]['seq']}")
        assert len(first) + len(rest) == len(FACTS)
        assert await lines(api, f"?after={rest[-1]['seq']}") == []


@pytest.mark.parametrize("query", ["", "&follow=true", "&newest=5"])
async def test_who_has_read_more_than_there_is_has_read_another_log(query: str) -> None:
    """After the restore of an older backup, a follower missed the facts up to the one it had read."""
    async with serving() as api, asyncio.timeout(30.0):
        await api.bus.publish(FACTS)
        problem = await api.body("GET", f"/v1/events?after={len(FACTS) + 1}{query}", 422)
        assert problem["field"] == "$.after"


async def test_a_newest_fact_that_cannot_be_read_does_not_hold_the_answer() -> None:
    async with serving() as api:
        await api.bus.publish(FACTS)
        api.bus.store("hopyard.job.broken.submitted", b"\xc1")
        assert len(await lines(api)) == len(FACTS)


@pytest.mark.parametrize("leads", [True, False])
async def test_followers_get_stored_and_new_facts(*, leads: bool) -> None:
    async with serving(attached=leads) as api:
        await api.bus.publish([submitted("a-1")])
        async with api.client.get("/v1/events?follow=true") as response:
            assert (await one_line(response))["event"]["job_id"] == "a-1"
            await api.bus.publish([submitted("b-1")])
            assert (await one_line(response))["event"]["job_id"] == "b-1"


@pytest.mark.parametrize("query", ["", "?newest=3", "?follow=true"])
async def test_the_answer_to_head_has_no_body(query: str) -> None:
    """Its lines came, and who asked next over the same connection found them before the answer."""
    async with serving() as api, asyncio.timeout(30.0):
        await api.bus.publish(FACTS)
        server = api.client.server
        reader, writer = await asyncio.open_connection(server.host, server.port)
        token = api.client.session.headers["Authorization"]
        with contextlib.closing(writer):
            for method, path, then in (
                ("HEAD", f"/v1/events{query}", "keep-alive"),
                ("GET", "/v1/me", "close"),
            ):
                head = f"{method} {path} HTTP/1.1\r\nHost: here\r\nConnection: {then}\r\n"
                writer.write(f"{head}Authorization: {token}\r\n\r\n".encode())
            to_head, to_get, body = (await reader.read()).split(b"\r\n\r\n")
        assert b"application/x-ndjson" in to_head
        assert to_get.startswith(b"HTTP/1.1 200 ")
        assert b"operator" in body


async def test_followers_do_not_hold_up_the_end_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.admission.http.api.HUNG_UP_POLL_REAL_S", 0.01)
    async with serving() as api, asyncio.timeout(30.0), api.client.get("/v1/events?follow=true") as response:
        ending = asyncio.create_task(api.client.server.close())
        assert await response.read() == b""
        await ending


@pytest.mark.parametrize("query", ["", "?newest=60"])
async def test_stored_facts_that_the_end_of_the_server_cuts_off_end_with_the_reason(query: str) -> None:
    """They looked complete."""

    class Slow(MemoryBus):
        """Later facts than those published are stored, and are long in coming."""

        async def last_seq(self) -> int:
            return 50

    async with (
        serving(bus=Slow(LoopClock()), ask_timeout_real_s=0.1) as api,
        asyncio.timeout(30.0),
    ):
        await api.bus.publish([submitted("a-1")])
        reading = asyncio.create_task(lines(api, query))
        await asyncio.sleep(0.3)
        ending = asyncio.create_task(api.client.server.close())
        *_, last = await reading
        assert last == {"problem": "facts 2 to 50 did not come; ask again"}
        await ending


async def test_a_follower_of_a_silent_stream_has_its_headers_at_once() -> None:
    async with serving() as api, asyncio.timeout(60.0), api.client.get("/v1/events?follow=true") as response:
        assert response.status == 200


async def test_followers_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.admission.http.api.FOLLOWERS_MAX", 1)
    async with serving() as api, api.client.get("/v1/events?follow=true"):
        await api.call("GET", "/v1/events?follow=true", 429)
        assert await lines(api) == []


async def test_a_follower_too_many_is_refused_before_nats_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds at once kept NATS busy, so that some got 503 in place of 429."""
    monkeypatch.setattr("services.admission.http.api.FOLLOWERS_MAX", 0)

    async def away() -> int:
        raise Unavailable("NATS does not answer")

    async with serving() as api:
        monkeypatch.setattr(api.bus, "last_seq", away)
        await api.call("GET", "/v1/events?follow=true", 429)
        await api.call("GET", "/v1/events", 503)


async def test_a_batch_that_comes_twice_is_listed_once() -> None:
    async with serving(bus=MemoryBus(LoopClock(), Faults(redeliver=1.0))) as api:
        await api.bus.publish(FACTS)
        assert len(await lines(api)) == len(FACTS)


@pytest.mark.parametrize(
    ("query", "seqs"),
    [
        ("newest=3", [-3, -2, -1]),
        ("newest=0", []),
        ("newest=2&job=train-1", [-11, -10]),
        ("newest=100", list(range(-19, 0))),
        ("newest=8&limit=3", [-8, -7, -6]),
        ("newest=8&limit=3&job=train-1", [-17, -16, -15]),
        ("newest=2&limit=3", [-2, -1]),
        ("since=1e9", []),
    ],
)
async def test_the_newest_facts_alone(query: str, seqs: list[int]) -> None:
    """`seqs`: counted from the end."""
    async with serving() as api:
        await api.bus.publish(FACTS)
        listed = await lines(api, f"?{query}")
        assert [each["seq"] - len(FACTS) - 1 for each in listed] == seqs


async def test_a_follower_of_the_newest_facts_gets_those_and_then_new_ones() -> None:
    async with serving() as api:
        await api.bus.publish([submitted("a-1"), submitted("a-2")])
        async with api.client.get("/v1/events?follow=true&newest=1") as response:
            assert (await one_line(response))["event"]["job_id"] == "a-2"
            await api.submit("k", name="b")
            assert (await one_line(response))["event"]["job_id"] == "b-1"


async def test_the_newest_facts_count_against_the_lines_of_a_follower() -> None:
    async with serving() as api, asyncio.timeout(60.0):
        await api.bus.publish(FACTS)
        assert len(await lines(api, "?follow=true&newest=8&limit=3")) == 3


async def test_facts_since_a_time_are_listed() -> None:
    async with serving() as api:
        late = msgspec.structs.replace(submitted("late-1"), at=500.0)
        await api.bus.publish([submitted("early-1"), late])
        assert [each["event"]["job_id"] for each in await lines(api, "?since=500")] == ["late-1"]


@pytest.mark.parametrize(
    "query",
    [
        "newest=-1",
        "newest=10001",
        "since=noon",
        "since=nan",
        "after=-1",
        "after=999999999999999999999999999999",
        "after=1&after=2",
        "limit=0",
        "follow=perhaps",
        "jobs=a",
        "job=",
    ],
)
async def test_a_wrong_query_is_refused(query: str) -> None:
    async with serving() as api:
        await api.call("GET", f"/v1/events?{query}", 422)


async def test_the_core_is_caught_up_once_every_stored_submission_is_folded() -> None:
    bus, driver, heard = MemoryBus(LoopClock(), Faults(duplicate=1.0)), Driver(), asyncio.Event()
    await bus.publish([joined("n-0"), submitted("train-1"), joined("n-1")])
    forwarding = Forwarding(bus, LoopClock(), Settings(), driver.core)
    inbox = Inbox(put=lambda _: heard.set(), ask=_nobody, replayed=lambda: True, seq=lambda: 0)
    task = asyncio.create_task(forwarding.attach(inbox))
    await asyncio.sleep(0.05)
    assert not heard.is_set()
    driver.fold(submitted("train-1"))
    await asyncio.wait_for(heard.wait(), 60.0)
    assert forwarding.is_open()
    task.cancel()
    await asyncio.wait({task})
    assert not forwarding.is_open()
    await bus.close()


async def test_a_late_answer_is_an_error_that_says_how_to_repeat() -> None:
    async with serving(attached=False, ask_timeout_real_s=0.05) as api:
        inbox = Inbox(
            put=lambda _: None, ask=_nobody, replayed=lambda: True, seq=lambda: 0, why_idle=lambda: "a reason"
        )
        task = asyncio.create_task(api.forwarding.attach(inbox))
        await asyncio.sleep(0.01)
        body, _ = await api.call(
            "POST", "/v1/jobs", 503, json=job_body(), headers={"Idempotency-Key": "mine"}
        )
        assert "admission did not answer in time: a reason; " in body["detail"]
        assert "Idempotency-Key mine" in body["detail"]
        task.cancel()
        await asyncio.wait({task})


async def _nobody(question: object) -> None:
    """Never answers."""
    del question
    await asyncio.get_running_loop().create_future()
