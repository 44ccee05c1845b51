"""What jobs print, gathered from agents over the bus."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from schemas.base import Message, Question
from schemas.ids import NodeId
from schemas.output import OutputPage, PrintedLine, RankOutput
from schemas.questions import ReadOutput, Refused, ShowJob, agent_of
from schemas.views import JobView
from tests.hopyard.cli_builders import job_view
from tests.services.admission.admission_world import Served, serving

PAGE = 5
"""lines in one answer of an agent for one rank"""


class Agent:
    """Stands for the agent of one node: what it has is a list of lines by rank, positions count them."""

    def __init__(self, node: str, **ranks: Sequence[tuple[float, str]]) -> None:
        self.node = NodeId(node)
        self.ranks = {int(rank.lstrip("r")): list(lines) for rank, lines in ranks.items()}
        self.asked: list[ReadOutput] = []
        self.refuses = ""

    async def answer(self, question: Question) -> Message:
        assert isinstance(question, ReadOutput)
        self.asked.append(question)
        if self.refuses:
            return Refused(reason=self.refuses)
        return OutputPage(ranks=tuple(self._rank(rank, question) for rank in sorted(self.ranks)))

    def _rank(self, rank: int, question: ReadOutput) -> RankOutput:
        lines = self.ranks[rank]
        begin = question.after.get(rank, question.others_after)
        if begin is None:
            begin = max(len(lines) - question.tail_lines, 0)
        end = min(begin + PAGE, len(lines))
        return RankOutput(
            rank=rank,
            lines=tuple(PrintedLine(at, text) for at, text in lines[begin:end]),
            next=end,
            more=end < len(lines),
        )


@asynccontextmanager
async def job_on(
    *agents: Agent, state: str = "running", silent: Sequence[str] = (), leads: bool = True
) -> AsyncIterator[Served]:
    nodes = tuple(NodeId(node) for node in (*(agent.node for agent in agents), *silent))
    async with serving(attached=leads) as api:
        api.views[ShowJob] = job_view("job-1", state=state, nodes=nodes)
        for agent in agents:
            await api.bus.serve(f"agent-{agent.node}", agent_of(agent.node), agent.answer)
        yield api


async def lines(api: Served, query: str = "") -> list[dict[str, Any]]:
    async with api.client.get(f"/v1/jobs/job-1/output{query}") as response:
        assert response.status == 200, await response.text()
        return [msgspec.json.decode(each) for each in (await response.read()).splitlines()]


async def test_lines_of_all_nodes_come_in_the_order_of_time() -> None:
    a, b = Agent("a", r0=[(1.0, "one"), (3.0, "three")]), Agent("b", r4=[(2.0, "two")])
    async with job_on(a, b) as api:
        assert await lines(api) == [
            {"node": "a", "at": 1.0, "rank": 0, "text": "one"},
            {"node": "b", "at": 2.0, "rank": 4, "text": "two"},
            {"node": "a", "at": 3.0, "rank": 0, "text": "three"},
        ]


async def test_the_newest_lines_are_those_of_the_whole_job() -> None:
    a, b = Agent("a", r0=[(1.0, "one"), (3.0, "three")]), Agent("b", r4=[(2.0, "two"), (4.0, "four")])
    async with job_on(a, b) as api:
        assert [line["text"] for line in await lines(api, "?newest=2")] == ["three", "four"]
        assert await lines(api, "?newest=0") == []


async def test_output_can_be_limited_to_one_rank() -> None:
    async with job_on(Agent("a", r0=[(1.0, "zero")], r1=[(1.0, "one")])) as api:
        assert [line["text"] for line in await lines(api, "?rank=1")] == ["one"]


@pytest.mark.parametrize(
    ("state", "query"), [("running", ""), ("completed", ""), ("completed", "&follow=true")]
)
async def test_a_rank_that_has_printed_nothing_is_refused_with_those_that_have(
    state: str, query: str
) -> None:
    """It looked like a process that has not printed anything yet."""
    async with job_on(Agent("a", r0=[(1.0, "zero")]), Agent("b", r1=[(1.0, "one")]), state=state) as api:
        refused, _ = await api.call("GET", f"/v1/jobs/job-1/output?rank=99{query}", 404)
        assert refused["detail"] == "there is no output of rank 99 of job-1, but of 0 to 1"


async def test_a_rank_that_may_start_is_waited_for_until_the_job_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("services.admission.http.output.POLL_REAL_S", 0.01)
    agent = Agent("a", r0=[(1.0, "zero")])
    async with job_on(agent) as api:
        async with api.client.get("/v1/jobs/job-1/output?follow=true&rank=1") as response:
            agent.ranks[1] = [(2.0, "one")]
            assert msgspec.json.decode(await response.content.readline())["text"] == "one"
        async with api.client.get("/v1/jobs/job-1/output?follow=true&rank=2") as response:
            api.views[ShowJob] = job_view("job-1", state="completed", nodes=(agent.node,))
            last = msgspec.json.decode(await response.read())
    assert last == {"problem": "there is no output of rank 2 of job-1, but of 0 to 1"}


async def test_a_rank_is_not_refused_while_nothing_was_printed_or_a_node_does_not_answer() -> None:
    async with job_on(Agent("a")) as api:
        assert await lines(api, "?rank=3") == []
    async with job_on(Agent("a", r0=[(1.0, "zero")]), silent=["b"]) as api:
        [problem] = await lines(api, "?rank=3")
        assert problem["node"] == "b"


async def test_a_node_that_does_not_answer_is_reported_and_the_others_are_shown() -> None:
    async with job_on(Agent("a", r0=[(1.0, "one")]), silent=["b"]) as api:
        problem, line = await lines(api)
        assert problem["node"] == "b"
        assert problem["problem"].startswith("the agent of b does not answer")
        assert line["text"] == "one"


async def test_an_agent_that_keeps_no_output_is_reported() -> None:
    agent = Agent("a")
    agent.refuses = "kept nowhere"
    async with job_on(agent) as api:
        assert await lines(api) == [{"node": "a", "problem": "kept nowhere"}]


class Rogue(Agent):
    async def answer(self, question: Question) -> Message:  # noqa: ARG002 - the name is the contract's
        return OutputPage(ranks=("what the agent of no version says",))  # type: ignore[arg-type]


async def test_an_answer_that_cannot_be_read_is_reported_and_the_others_are_shown() -> None:
    async with job_on(Rogue("a"), Agent("b", r0=[(1.0, "one")])) as api:
        problem, line = await lines(api)
        assert problem["node"] == "a"
        assert problem["problem"].startswith("the answer of the agent of a cannot be read: ")
        assert line["text"] == "one"


@pytest.mark.parametrize("leads", [True, False])
async def test_a_follower_gets_each_line_once_until_the_end(
    monkeypatch: pytest.MonkeyPatch, *, leads: bool
) -> None:
    monkeypatch.setattr("services.admission.http.output.POLL_REAL_S", 0.01)
    agent = Agent("a", r0=[(1.0, "one")])
    async with (
        job_on(agent, leads=leads) as api,
        api.client.get("/v1/jobs/job-1/output?follow=true") as response,
    ):
        first = msgspec.json.decode(await response.content.readline())
        agent.ranks[0].append((2.0, "two"))
        second = msgspec.json.decode(await response.content.readline())
        running = api.views[ShowJob]
        assert isinstance(running, JobView)
        agent.ranks[0].append((3.0, "last"))
        api.views[ShowJob] = msgspec.structs.replace(running, state="completed")
        rest = [msgspec.json.decode(each) for each in (await response.read()).splitlines()]
        assert [line["text"] for line in (first, second, *rest)] == ["one", "two", "last"]


async def test_a_follower_sees_the_nodes_to_which_the_job_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.admission.http.output.POLL_REAL_S", 0.01)
    a, b = Agent("a", r0=[(1.0, "here")]), Agent("b", r0=[(5.0, "there")])
    async with job_on(a) as api:
        await api.bus.serve("agent-b", agent_of(b.node), b.answer)
        async with api.client.get("/v1/jobs/job-1/output?follow=true") as response:
            assert msgspec.json.decode(await response.content.readline())["text"] == "here"
            api.views[ShowJob] = job_view("job-1", state="running", nodes=(a.node, b.node))
            assert msgspec.json.decode(await response.content.readline())["text"] == "there"


async def test_a_follower_gets_every_line_of_what_starts_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many lines as were wanted to begin with, and those before them were lost."""
    monkeypatch.setattr("services.admission.http.output.POLL_REAL_S", 0.01)
    printed = [(1.0, f"line {number}") for number in range(2 * PAGE)]
    a, b = Agent("a", r0=printed), Agent("b", r0=printed)
    async with job_on(a) as api:
        await api.bus.serve("agent-b", agent_of(b.node), b.answer)
        async with api.client.get("/v1/jobs/job-1/output?follow=true&newest=1") as response:
            assert msgspec.json.decode(await response.content.readline())["text"] == "line 9"
            a.ranks[1] = printed
            api.views[ShowJob] = job_view("job-1", state="completed", nodes=(a.node, b.node))
            rest = [msgspec.json.decode(each) for each in (await response.read()).splitlines()]
    of = [(line["node"], line["rank"], line["text"]) for line in rest]
    assert sorted(of) == [
        (node, rank, text) for node, rank in (("a", 1), ("b", 0)) for _, text in sorted(printed)
    ]


async def test_a_node_that_answers_late_begins_with_its_newest_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.admission.http.output.POLL_REAL_S", 0.01)
    agent = Agent("a", r0=[(1.0, "old"), (2.0, "new")])
    agent.refuses = "not yet"
    async with (
        job_on(agent) as api,
        api.client.get("/v1/jobs/job-1/output?follow=true&newest=1") as response,
    ):
        assert msgspec.json.decode(await response.content.readline())["problem"] == "not yet"
        agent.refuses = ""
        assert msgspec.json.decode(await response.content.readline())["text"] == "new"


async def test_dropped_lines_are_reported() -> None:
    class Late(Agent):
        def _rank(self, rank: int, question: ReadOutput) -> RankOutput:
            return msgspec.structs.replace(super()._rank(rank, question), lost=True)

    async with job_on(Late("a", r0=[(1.0, "one")])) as api:
        assert [line.get("problem", "") for line in await lines(api)] == [
            "earlier lines are left out",
            "",
        ]


async def test_the_output_of_a_job_that_is_not_there_is_not_found() -> None:
    async with serving() as api:
        await api.call("GET", "/v1/jobs/nobody-1/output", 404)


@pytest.mark.parametrize("query", ["newest=-1", "newest=10001", "rank=-1", "tail=5"])
async def test_a_wrong_question_about_output_is_refused(query: str) -> None:
    async with serving() as api:
        await api.call("GET", f"/v1/jobs/job-1/output?{query}", 422)


async def test_a_refusal_while_following_is_the_last_line_and_no_second_response(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A second status line stood in the body."""
    monkeypatch.setattr("services.admission.http.output.POLL_REAL_S", 0.01)
    agent = Agent("a", r0=[(1.0, "one")])
    async with job_on(agent) as api, api.client.get("/v1/jobs/job-1/output?follow=true") as response:
        assert msgspec.json.decode(await response.content.readline())["text"] == "one"
        api.views[ShowJob] = Refused(reason="the disk is full", failed=True)
        assert "the disk is full" in msgspec.json.decode(await response.read())["problem"]


async def test_a_follower_outlasts_a_monitor_that_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A restart of the monitor, which takes a second, ended every `logs -f`."""
    monkeypatch.setattr("services.admission.http.output.POLL_REAL_S", 0.01)
    agent = Agent("a", r0=[(1.0, "one")])
    async with job_on(agent) as api, api.client.get("/v1/jobs/job-1/output?follow=true") as response:
        assert msgspec.json.decode(await response.content.readline())["text"] == "one"
        running, asked = api.views[ShowJob], len(api.asked)
        assert isinstance(running, JobView)
        api.views[ShowJob] = Refused(reason="starts again", passing=True)
        while len(api.asked) == asked:
            await asyncio.sleep(0.01)
        agent.ranks[0].append((2.0, "two"))
        assert msgspec.json.decode(await response.content.readline())["text"] == "two"
        api.views[ShowJob] = msgspec.structs.replace(running, state="completed")
        assert await response.read() == b""


async def test_output_that_is_cut_off_before_the_end_of_the_job_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The end of the server looked like the end of the job."""
    monkeypatch.setattr("services.admission.http.output.POLL_REAL_S", 0.01)
    async with (
        job_on(Agent("a", r0=[(1.0, "one")])) as api,
        api.client.get("/v1/jobs/job-1/output?follow=true") as response,
    ):
        assert msgspec.json.decode(await response.content.readline())["text"] == "one"
        ending = asyncio.create_task(api.client.server.close())
        last = msgspec.json.decode(await response.read())
        assert last == {"problem": "cut off before the end of the job; ask again"}
        await ending
