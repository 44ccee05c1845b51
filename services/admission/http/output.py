"""The output of a job, gathered from the agents of its nodes: lines kept there and, if followed, new ones."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from http import HTTPStatus

import msgspec

from schemas.codec import Malformed
from schemas.ids import JobId, NodeId
from schemas.output import OutputLine, OutputPage
from schemas.questions import ReadOutput, Refused
from schemas.views import JobView
from services.admission import problems
from services.admission.problems import Refusal
from shared.domain.states import ENDED
from shared.runtime.bus.contract import Questions, Unavailable

POLL_REAL_S = 1.0
PAGES_AT_ONCE = 6
"""pages of a node's lines that are read in a row; the newest lines of a process take five at most"""
ASKED_AT_ONCE = 32
"""agents that are asked at the same time"""

Look = Callable[[], Awaitable[JobView]]


class Reader:
    """Asks the agents for lines that were not read before.

    `rank`: the process whose lines are wanted; None: all. `newest`: number of lines to begin with, of each
    process there is; those that start later are read from their first line.
    """

    def __init__(
        self, bus: Questions, job_id: JobId, *, rank: int | None, newest: int, limit_real_s: float
    ) -> None:
        self._bus = bus
        self._job_id = job_id
        self._rank = rank
        self._newest = newest
        self._limit_real_s = limit_real_s
        self._next: dict[NodeId, dict[int, int]] = {}
        """by node and rank: where to read on"""
        self._not_begun: set[NodeId] = set()
        """nodes whose newest lines are still to be read"""
        self._problems: dict[NodeId, str] = {}
        self._asking = asyncio.Semaphore(ASKED_AT_ONCE)

    def refuse_unknown_rank(self) -> None:
        """Raise Refusal if all nodes have answered, and other ranks have printed something, but not this."""
        ranks = sorted({rank for known in self._next.values() for rank in known})
        if self._rank is None or self._rank in ranks or not ranks or self._problems:
            return
        whole = ranks == list(range(len(ranks))) and len(ranks) > 1
        there = f"0 to {ranks[-1]}" if whole else ", ".join(map(str, ranks))
        reason = f"there is no output of rank {self._rank} of {self._job_id}, but of {there}"
        raise Refusal(problems.not_found(reason))

    async def begin(self, nodes: Sequence[NodeId]) -> list[OutputLine]:
        """The newest lines; those of a node that does not answer now come with a later read."""
        self._not_begun = set(nodes)
        return await self.read(nodes)

    async def read(self, nodes: Sequence[NodeId]) -> list[OutputLine]:
        """New lines in the order of their times; a problem of a node is reported once."""
        found = await asyncio.gather(*(self._new_of_node(node) for node in nodes))
        lines = [line for part in found for line in part]
        return sorted(lines, key=lambda line: (line.at is None, line.at or 0.0, line.node, line.rank or 0))

    async def _new_of_node(self, node: NodeId) -> list[OutputLine]:
        lines, more = await self._page_of_node(node)
        for _ in range(PAGES_AT_ONCE - 1):
            if not more:
                break
            further, more = await self._page_of_node(node)
            lines += further
        return lines

    async def _page_of_node(self, node: NodeId) -> tuple[list[OutputLine], bool]:
        """The next lines of each process, and whether a process has more."""
        known = self._next.setdefault(node, {})
        question = ReadOutput(
            node_id=node,
            job_id=self._job_id,
            after=known,
            others_after=None if node in self._not_begun else 0,
            tail_lines=self._newest,
        )
        try:
            async with self._asking:
                reply = await self._bus.ask(question, self._limit_real_s)
        except (Unavailable, TimeoutError) as error:
            return self._problem(node, f"the agent of {node} does not answer: {error}"), False
        except Malformed as error:
            return self._problem(node, f"the answer of the agent of {node} cannot be read: {error}"), False
        if not isinstance(reply, OutputPage):
            wrong = f"the agent of {node} gave an answer of the wrong kind"
            reason = reply.reason if isinstance(reply, Refused) else wrong
            return self._problem(node, reason), False
        self._problems.pop(node, None)
        self._not_begun.discard(node)
        lines: list[OutputLine] = []
        for each in reply.ranks:
            known[each.rank] = each.next
            if self._rank not in (None, each.rank):
                continue
            if each.lost:
                lines.append(OutputLine(node=node, rank=each.rank, problem="earlier lines are left out"))
            lines += [OutputLine(node=node, rank=each.rank, at=one.at, text=one.text) for one in each.lines]
        wanted = [each for each in reply.ranks if self._rank in (None, each.rank)]
        return lines, any(each.more for each in wanted)

    def _problem(self, node: NodeId, text: str) -> list[OutputLine]:
        if self._problems.get(node) == text:
            return []
        self._problems[node] = text
        return [OutputLine(node=node, problem=text)]


async def output_lines(
    reader: Reader, look: Look, newest: int, *, follow: bool, listening: Callable[[], bool]
) -> AsyncGenerator[list[OutputLine]]:
    """The newest lines that agents keep; then, with `follow`, new ones until the job has ended.

    Raises Refusal, also if only other ranks have printed something, and the job has ended or is not followed;
    Unavailable if the job cannot be shown at first, or if it follows and `listening` fails before that: a
    response cut off must not look complete.
    """
    view = await look()
    lines = await reader.begin(view.nodes)
    if not follow or view.state in ENDED:
        reader.refuse_unknown_rank()
    reported = [line for line in lines if line.problem]
    yield [*reported, *[line for line in lines if not line.problem][-newest or len(lines) :]]
    if not follow:
        return

    async def new_lines() -> list[OutputLine]:
        lines = await reader.read(view.nodes)
        if not listening():
            raise Unavailable("cut off before the end of the job; ask again")
        return lines

    while view.state not in ENDED:
        await asyncio.sleep(POLL_REAL_S)
        view = await _looked(look) or view  # agents are asked also while nobody says how the job is
        yield await new_lines()
    await asyncio.sleep(POLL_REAL_S)  # a process may print after the job's end is known
    while lines := await new_lines():  # a page at a time
        yield lines
    reader.refuse_unknown_rank()


async def _looked(look: Look) -> JobView | None:
    """The job; None while it cannot be shown, as while the monitor starts again. Raises Refusal."""
    try:
        return await look()
    except Unavailable:
        return None
    except Refusal as refusal:
        if refusal.problem.status == HTTPStatus.SERVICE_UNAVAILABLE:
            return None
        raise


def encoded(lines: Sequence[OutputLine]) -> bytes:
    return b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
