"""The HTTP API of admission, from the client's side: one method a route, typed answers, two errors."""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from hopyard.api.transport import Headers, Late, Lost, Request, Response, Transport
from hopyard.failures import Failure, Unanswered, Unreachable
from schemas.base import Event, Message
from schemas.codec import Malformed, fact_of_json
from schemas.ids import JobId, NodeId
from schemas.jobs import JobFile
from schemas.output import OutputLine
from schemas.overview import RunPage
from schemas.tokens import Identity
from schemas.views import (
    Cancelled,
    ClockView,
    JobHold,
    JobPage,
    JobPriority,
    JobSorting,
    JobView,
    NodeDrain,
    NodePage,
    NodeRemoval,
    PolicyChoice,
    PolicyPage,
    PriorityChoice,
    Problem,
    Readiness,
    SettingsView,
    StatusView,
    Submitted,
    WhyView,
)

CLOCK = "Hopyard-Clock"
CLUSTER = "Hopyard-Cluster"
PAGE = 500
"""jobs of a page, the most that are allowed: for each page the monitor looks at all jobs"""
EVENTS = 10_000
"""lines of the event log in one request"""
CHOICE_LIMIT_S = 60.0
"""seconds for the choice of a policy"""
GONE = frozenset({502, 503, 504})
"""HTTP statuses for an API that cannot answer at the moment"""

M = TypeVar("M", bound=Message)

Place = tuple[str, str]
"""the address of an API, and a token for it"""
Elsewhere = Callable[[str], Place | None]
"""where the API is that was away at this address; None: nothing better is known"""


PROBLEM = b'{"problem":'
"""beginning of the line that says why further ones are missing"""


LISTED_BY = {
    "there is no job ": "`hopyard ps` lists the ids of jobs",
    "there is no node ": "`hopyard nodes` lists the nodes",
}
"""how the answer about what does not exist begins, and the command that lists what does"""


class ApiRefusal(Failure):
    """The API understood and said no; `problem` names the field and the reason.

    A field of a query has the name of the option that it is from.
    """

    def __init__(self, problem: Problem, *, of_query: bool = False) -> None:
        field = problem.field.replace("$.", "--", 1) if of_query and problem.field else problem.field
        text = f"{field}: {problem.detail}" if field else problem.detail
        lists = [lists for missing, lists in LISTED_BY.items() if problem.detail.startswith(missing)]
        super().__init__("; ".join((text, *lists)))
        self.problem = problem
        self.field = problem.field
        self.of_query = of_query


class LoggedEvent(Message, frozen=True, kw_only=True):
    """A line of `/v1/events`."""

    seq: int
    event: msgspec.Raw

    def fields(self) -> dict[str, object]:
        return msgspec.json.decode(self.event, type=dict[str, object])

    def fact(self) -> Event:
        """Raises Malformed for a fact of a later version."""
        return fact_of_json(bytes(self.event))

    def known(self) -> Event | None:
        """The fact; None: it is of a later version."""
        try:
            return self.fact()
        except Malformed:
            return None


class Client:
    """The API at `url`: `async with Client(url, transport) as client`. Raises ApiRefusal and Unreachable."""

    def __init__(
        self, url: str, transport: Transport, token: str = "", elsewhere: Elsewhere = lambda _: None
    ) -> None:
        self.clock: ClockView | None = None
        """of the cluster, as the last answer said; None: none has"""
        self.cluster = ""
        """name of the cluster, as the last answer gave it"""
        self._transport = transport
        self._elsewhere = elsewhere
        self._away = ""
        """the address at which the last call found no API"""
        self._go_to((url, token))

    async def __aenter__(self) -> Self:
        await self._transport.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._transport.close()

    # ---- jobs

    async def submit(self, job: JobFile, key: str, *, hold: bool = False) -> Submitted:
        """Submit once, however often it is called with this idempotency key; on hold, if that is wanted."""
        headers = {"Idempotency-Key": key, "Content-Type": "application/json"}
        body = msgspec.json.encode(job)
        query = {"hold": "true" if hold else None}
        return await self._call("POST", "/v1/jobs", Submitted, query=query, headers=headers, body=body)

    async def jobs(
        self,
        *,
        states: Sequence[str] = (),
        project: str | None = None,
        user: str | None = None,
        sort: JobSorting = JobSorting.SUBMITTED,
        after: str | None = None,
        limit: int = PAGE,
    ) -> JobPage:
        """Up to `limit` jobs, gathered page by page."""
        found: list[JobView] = []
        wanted = {"state": ",".join(states) or None, "project": project, "user": user, "sort": sort.value}
        while True:
            limits = {"after": after, "limit": str(min(limit - len(found), PAGE))}
            page = await self._call("GET", "/v1/jobs", JobPage, query=wanted | limits)
            found += page.jobs
            after = page.next
            if after is None or not page.jobs or len(found) >= limit:
                return JobPage(jobs=tuple(found), next=after)

    async def job(self, job_id: JobId) -> JobView:
        return await self._call("GET", f"/v1/jobs/{quote(job_id, safe='')}", JobView)

    async def runs(self, job_id: JobId) -> RunPage:
        return await self._call("GET", f"/v1/jobs/{quote(job_id, safe='')}/runs", RunPage)

    async def why(self, job_id: JobId) -> WhyView:
        return await self._call("GET", f"/v1/jobs/{quote(job_id, safe='')}/why", WhyView)

    async def cancel(self, job_id: JobId) -> Cancelled:
        return await self._call("DELETE", f"/v1/jobs/{quote(job_id, safe='')}", Cancelled)

    async def set_priority(self, job_id: JobId, priority: float) -> JobPriority:
        body = msgspec.json.encode(PriorityChoice(priority=priority))
        headers = {"Content-Type": "application/json"}
        path = f"/v1/jobs/{quote(job_id, safe='')}/priority"
        return await self._call("PUT", path, JobPriority, headers=headers, body=body)

    async def hold(self, job_id: JobId) -> JobHold:
        return await self._call("POST", f"/v1/jobs/{quote(job_id, safe='')}/hold", JobHold)

    async def release(self, job_id: JobId) -> JobHold:
        return await self._call("DELETE", f"/v1/jobs/{quote(job_id, safe='')}/hold", JobHold)

    # ---- cluster

    async def nodes(self) -> NodePage:
        return await self._call("GET", "/v1/nodes", NodePage)

    async def drain(self, node_id: NodeId) -> NodeDrain:
        return await self._call("POST", f"/v1/nodes/{quote(node_id, safe='')}/drain", NodeDrain)

    async def restore(self, node_id: NodeId) -> NodeDrain:
        return await self._call("DELETE", f"/v1/nodes/{quote(node_id, safe='')}/drain", NodeDrain)

    async def remove_node(self, node_id: NodeId) -> NodeRemoval:
        return await self._call("DELETE", f"/v1/nodes/{quote(node_id, safe='')}", NodeRemoval)

    async def status(self) -> StatusView:
        return await self._call("GET", "/v1/status", StatusView)

    async def policy(self) -> PolicyChoice:
        return await self._call("GET", "/v1/policy", PolicyChoice)

    async def ready(self) -> Readiness:
        """The state of the services, while admission is ready."""
        return await self._call("GET", "/readyz", Readiness)

    async def policies(self) -> PolicyPage:
        return await self._call("GET", "/v1/policies", PolicyPage)

    async def settings(self) -> SettingsView:
        return await self._call("GET", "/v1/settings", SettingsView)

    async def me(self) -> Identity:
        return await self._call("GET", "/v1/me", Identity)

    async def set_policy(self, choice: PolicyChoice) -> PolicyChoice:
        """The planner loads the policy first, which may take `policy_load_real_s`."""
        headers, body = {"Content-Type": "application/json"}, msgspec.json.encode(choice)
        return await self._call(
            "PUT", "/v1/policy", PolicyChoice, headers=headers, body=body, limit_s=CHOICE_LIMIT_S
        )

    async def events(
        self,
        *,
        after: int = 0,
        job: str | None = None,
        follow: bool = False,
        tail: int | None = None,
        since: float | None = None,
    ) -> AsyncIterator[LoggedEvent]:
        """The event log above sequence `after`; without `follow` it ends at the newest event.

        `tail`: number of stored events to begin with, the newest ones; `since`: cluster time of the first.
        """
        asked: dict[str, str | None] = {"job": job, "since": None if since is None else repr(since)}
        asked["newest"] = None if tail is None else str(tail)
        asked |= {"follow": "true"} if follow else {"limit": str(EVENTS)}
        while True:
            count = 0
            async for line in self._lines("/v1/events", asked | {"after": str(after)}):
                logged = self._decode(line, LoggedEvent)
                yield logged
                count, after = count + 1, logged.seq
            if follow or count < EVENTS or tail is not None:
                return

    async def output(
        self, job_id: JobId, *, newest: int, rank: int | None = None, follow: bool = False
    ) -> AsyncGenerator[OutputLine, None]:
        """The job's output: the newest lines and, with `follow`, further ones until the job has ended."""
        asked: dict[str, str | None] = {"newest": str(newest), "rank": None if rank is None else str(rank)}
        asked["follow"] = "true" if follow else None
        async with contextlib.aclosing(
            self._lines(f"/v1/jobs/{quote(job_id, safe='')}/output", asked)
        ) as lines:
            async for line in lines:
                yield self._decode(line, OutputLine)

    # ---- HTTP

    async def _call(
        self,
        method: str,
        path: str,
        kind: type[M],
        *,
        query: Mapping[str, str | None] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        limit_s: float | None = None,
    ) -> M:
        with self._found():
            address = self._address(path, query)
            sent = Request(method, address, self._headers | dict(headers or {}), body, limit_s)
            async with self._transport.sent(sent) as response:
                self._hear(response.headers)
                answer = await _whole(response)
            self._raise_for(response.status, answer, query)
            return self._decode(answer, kind)

    async def _lines(self, path: str, query: Mapping[str, str | None]) -> AsyncGenerator[bytes, None]:
        """Lines of any length."""
        with self._found():
            sent = Request("GET", self._address(path, query), self._headers)
            async with self._transport.sent(sent, endless=True) as response:
                self._hear(response.headers)
                if response.status >= 400:  # noqa: PLR2004 - where HTTP's errors begin
                    self._raise_for(response.status, await _whole(response), query)
                rest = b""
                async for chunk in response.chunks:
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in filter(None, lines):
                        if line.startswith(PROBLEM):
                            raise Failure(msgspec.json.decode(line, type=dict[str, str])["problem"])
                        yield line
                if rest:  # the last line: without its newline, or cut short, which decoding shows
                    yield rest

    @contextlib.contextmanager
    def _found(self) -> Iterator[None]:
        """A call to where the API is; if it was away, that is looked up again. Raises Unreachable."""
        if self._away == self.url and (place := self._elsewhere(self.url)) is not None:
            self._go_to(place)
        asked, self._away = self.url, ""
        try:
            yield
        except (Lost, Unreachable) as error:
            self._away = asked
            raise (self._unreachable(error) if isinstance(error, Lost) else error) from None

    def _go_to(self, place: Place) -> None:
        url, token = place
        self.url = url.rstrip("/")
        self.has_token = bool(token)
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def _hear(self, headers: Headers) -> None:
        """Read the clock and cluster from the headers; a header that a proxy has damaged is ignored."""
        self.cluster = headers.get(CLUSTER, "")
        with contextlib.suppress(msgspec.DecodeError):
            self.clock = msgspec.json.decode(headers.get(CLOCK, "").encode(), type=ClockView)

    def _address(self, path: str, query: Mapping[str, str | None] | None) -> str:
        given = urlencode({name: value for name, value in (query or {}).items() if value is not None})
        return f"{self.url}{path}?{given}" if given else self.url + path

    def _unreachable(self, error: Lost) -> Unreachable:
        if isinstance(error, Late):
            return Unanswered(f"{self.url} took the call and did not answer in time")
        return Unreachable(f"cannot reach {self.url}: {error}")

    def _raise_for(self, status: int, answer: bytes, query: Mapping[str, str | None] | None) -> None:
        if status < 400:  # noqa: PLR2004 - where HTTP's errors begin
            return
        problem = _problem(status, answer)
        if status in GONE:
            raise Unreachable(f"{self.url} is not ready: {problem.detail}")
        asked = [name for name, value in (query or {}).items() if value is not None]
        raise ApiRefusal(problem, of_query=(problem.field or "").removeprefix("$.") in asked)

    def _decode(self, answer: bytes, kind: type[M]) -> M:
        try:
            return msgspec.json.decode(answer, type=kind)
        except msgspec.DecodeError as error:
            raise Unreachable(f"what answers at {self.url} is not this API: {error}") from None


async def _whole(response: Response) -> bytes:
    return b"".join([chunk async for chunk in response.chunks])


def _problem(status: int, answer: bytes) -> Problem:
    try:
        return msgspec.json.decode(answer, type=Problem)
    except msgspec.DecodeError:
        text = answer[:200].decode(errors="replace").strip()
        if text.startswith("<"):  # a web page, of a proxy or of another server
            text = f"a web page with HTTP status {status} answers, not hopyard's API"
        return Problem(title="refused", status=status, detail=text or f"HTTP status {status}")
