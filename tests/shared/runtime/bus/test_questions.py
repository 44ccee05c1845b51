import asyncio
import random

import pytest

from schemas.base import Message, Question
from schemas.questions import ESTIMATOR, MONITOR, EstimateQuestion, Estimates, ListJobs, ListNodes, Refused
from schemas.views import JobPage
from shared.runtime.bus.contract import Bus, Unavailable
from shared.runtime.bus.limits import QUESTION_MAX_BYTES
from tests.bus_nets import LIMIT_S, JetStreamNet, LiveNats, Net

PAGE = JobPage(jobs=(), next="7")


async def _page(_: Question) -> Message:
    return PAGE


async def test_a_question_gets_its_reply(net: Net) -> None:
    server, client = await net.client("monitor"), await net.client()
    await server.serve("monitor", MONITOR, _page)
    assert await client.ask(ListJobs(), 2.0) == PAGE
    assert server.counts.questions_answered == 1


async def test_the_answer_sees_the_question(net: Net) -> None:
    asked: list[Question] = []

    async def answer(question: Question) -> Message:
        asked.append(question)
        return PAGE

    bus = await net.client("monitor")
    await bus.serve("monitor", MONITOR, answer)
    await bus.ask(ListJobs(states=("running",)), 2.0)
    assert asked == [ListJobs(states=("running",))]


async def test_an_absent_server_is_unavailable(net: Net) -> None:
    with pytest.raises(Unavailable):
        await (await net.client()).ask(ListJobs(), 2.0)


async def test_a_slow_answer_is_unavailable_after_the_time_limit(net: Net) -> None:
    async def answer(_: Question) -> Message:
        await asyncio.sleep(10 * LIMIT_S)
        return PAGE

    bus = await net.client("monitor")
    await bus.serve("monitor", MONITOR, answer)
    async with asyncio.timeout(LIMIT_S):
        with pytest.raises(Unavailable):
            await bus.ask(ListJobs(), 0.1)


async def test_an_answer_that_raises_is_a_refusal(net: Net) -> None:
    async def answer(_: Question) -> Message:
        raise KeyError("j-1")

    bus = await net.client("monitor")
    await bus.serve("monitor", MONITOR, answer)
    assert await bus.ask(ListNodes(), 2.0) == Refused(reason="KeyError: 'j-1'", failed=True)
    assert bus.counts.questions_refused == 1


async def test_a_server_that_ends_before_answering_is_unavailable(net: Net) -> None:
    """The server has not refused, so a repeated question may get an answer."""

    async def answer(_: Question) -> Message:
        raise Unavailable("monitor has ended")

    bus = await net.client("monitor")
    await bus.serve("monitor", MONITOR, answer)
    with pytest.raises(Unavailable, match="monitor has ended"):
        await bus.ask(ListNodes(), 2.0)


async def test_a_refusal_may_be_the_answer(net: Net) -> None:
    async def answer(_: Question) -> Message:
        return Refused(reason="no such job")

    bus = await net.client("monitor")
    await bus.serve("monitor", MONITOR, answer)
    assert await bus.ask(ListJobs(), 2.0) == Refused(reason="no such job")


async def test_many_questions_are_answered_at_once(net: Net) -> None:
    everybody = asyncio.Barrier(20)

    async def answer(_: Question) -> Message:
        await everybody.wait()
        return PAGE

    bus = await net.client("monitor")
    await bus.serve("monitor", MONITOR, answer)
    assert await asyncio.gather(*(bus.ask(ListJobs(), 5.0) for _ in range(20))) == [PAGE] * 20


async def test_one_of_several_servers_gets_the_question(net: Net) -> None:
    client, servers = await net.client(), [await net.client("monitor") for _ in range(2)]
    for server in servers:
        await server.serve("monitor", MONITOR, _page)
    for _ in range(40):
        await client.ask(ListJobs(), 2.0)
    answered = [server.counts.questions_answered for server in servers]
    assert sum(answered) == 40
    assert min(answered) > 0


async def test_a_closed_server_answers_no_more(net: Net) -> None:
    client, server = await net.client(), await net.client("monitor")
    await server.serve("monitor", MONITOR, _page)
    await server.close()
    with pytest.raises(Unavailable):
        await client.ask(ListJobs(), 1.0)


async def test_a_question_and_a_reply_may_be_larger_than_a_message(net: Net) -> None:
    """A question about a million configurations: random bytes, so that no compression could help."""
    rows = random.Random(1).randbytes(4_000_000)
    question = EstimateQuestion(jobs=(), nodes=(), job=rows, start=rows, node=rows, gpus=rows)
    estimates = Estimates(throughput=rows * 2, variance=rows * 2, count=rows, layer=rows)

    async def answer(asked: Question) -> Message:
        return estimates if asked == question else Refused(reason="another question arrived")

    bus = await net.client("estimator")
    await bus.serve("estimator", ESTIMATOR, answer)
    assert await bus.ask(question, 10.0) == estimates


async def test_a_question_above_the_limit_is_refused(net: Net) -> None:
    rows = bytes(QUESTION_MAX_BYTES)
    bus = await net.client("estimator")
    with pytest.raises(ValueError, match="at most"):
        await bus.ask(EstimateQuestion(jobs=(), nodes=(), job=rows, start=b"", node=b"", gpus=b""), 1.0)


async def test_a_malformed_question_is_refused(live: JetStreamNet) -> None:
    bus = await live.client("monitor")
    await bus.serve("monitor", MONITOR, _page)
    reply = await live.request(MONITOR, b"\x01\x02")
    assert b"malformed question" in reply
    assert bus.counts.malformed == 1


async def test_the_ordinary_tools_see_the_service(live: JetStreamNet) -> None:
    bus = await live.client("monitor")
    await bus.serve("monitor", MONITOR, _page)
    assert b'"name": "monitor"' in await live.request("$SRV.PING", b"")


async def test_a_server_answers_again_after_a_restart(live: JetStreamNet, nats: LiveNats) -> None:
    client, server = await live.client(), await live.client("monitor")
    await server.serve("monitor", MONITOR, _page)
    await nats.restart()
    assert await _patiently(client) == PAGE


async def _patiently(bus: Bus) -> Message:
    async with asyncio.timeout(LIMIT_S):
        while True:
            try:
                return await bus.ask(ListJobs(), 1.0)
            except Unavailable:
                await asyncio.sleep(0.05)
