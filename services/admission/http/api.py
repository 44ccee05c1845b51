"""The HTTP API: requests that change something go to the core, requests that read go to the monitor."""

import asyncio
import contextlib
import time
import uuid
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar

import msgspec
from aiohttp import hdrs, web

from schemas.base import Message, Question
from schemas.ids import JobId, NodeId, PlanId
from schemas.jobs import JobFile
from schemas.overview import PlanDetail, PlanPage, RunPage, SummaryPage, TimelineView
from schemas.plans import Waiting
from schemas.questions import (
    ExplainJob,
    JudgePolicy,
    ListJobs,
    ListNodes,
    ListPlans,
    ListRuns,
    ListSummaries,
    PolicyVerdict,
    Refused,
    ShowJob,
    ShowPlan,
    ShowStatus,
    ShowTimeline,
)
from schemas.settings import Settings
from schemas.tokens import Identity
from schemas.views import (
    Cancelled,
    ClockView,
    JobHold,
    JobPage,
    JobPriority,
    JobView,
    NodeDrain,
    NodePage,
    NodeRemoval,
    PolicyChoice,
    PolicyPage,
    PriorityChoice,
    Problem,
    SettingsView,
    StatusView,
    Submitted,
    WhyView,
)
from services.admission import problems
from services.admission.http import static
from services.admission.http.authorization import Authorization, shown_in
from services.admission.http.bodies import decode_body, decode_query
from services.admission.http.forwarding import ApiBus, Forwarding
from services.admission.http.job_facts import Fetched, Wanted, fetched
from services.admission.http.lines import about, line, problem_line, records
from services.admission.http.openapi import CLOCK, KEY, LINES, document
from services.admission.http.operations import (
    OPERATIONS,
    EventsQuery,
    JobsQuery,
    NoQuery,
    Operation,
    OutputQuery,
    PlansQuery,
    SubmitQuery,
    SummariesQuery,
    TimelineQuery,
)
from services.admission.http.output import Reader, encoded, output_lines
from services.admission.http.responses import answer, position_of, refuse, token_of
from services.admission.problems import Refusal
from services.admission.questions import (
    Cancel,
    RemoveNode,
    SetDrain,
    SetHold,
    SetPolicy,
    SetPriority,
    ShowFresh,
    ShowPolicies,
    ShowPolicy,
    Submit,
    SubmitHeld,
)
from shared.domain.idempotency import key_fault
from shared.domain.policy_names import parted
from shared.runtime.bus.contract import Record, Unavailable
from shared.runtime.clock import Clock, unix_by
from shared.runtime.damage import Damaged
from shared.runtime.process.client_timeouts import BODY_LIMIT_S, TimedResponse
from shared.runtime.process.reports import reports
from shared.runtime.process.stream_ends import ends
from shared.runtime.transports import abort

FOLLOWERS_MAX = 64
"""event streams that are followed at once"""
HUNG_UP_POLL_REAL_S = 1.0
"""interval at which a stream without new facts checks whether its client is still connected"""
JUDGED_AGAIN_REAL_S = 1.0
"""interval at which a stream checks whether the token with which it was opened is still valid"""

CALLER = web.RequestKey("caller", Identity)
JUDGED_AT = web.RequestKey("judged_at", float)
QUERY = web.RequestKey("query", msgspec.Struct)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
M = TypeVar("M", bound=Message)
B = TypeVar("B")
K = TypeVar("K")
Q = TypeVar("Q", bound=msgspec.Struct)


class Api:
    """A handler for each operation, and the routes to them."""

    def __init__(
        self,
        bus: ApiBus,
        clock: Clock,
        settings: Settings,
        forwarding: Forwarding,
        in_force: SettingsView,
        *,
        authorization: Authorization,
    ) -> None:
        self._bus = bus
        self._clock = clock
        self._settings = settings
        self._forwarding = forwarding
        self._in_force = in_force
        self._authorization = authorization
        self._followers = 0

    # ---- routes

    def routes(self) -> list[web.RouteDef]:
        handlers: dict[str, Handler] = {
            "submit_job": self.submit_job,
            "list_jobs": self.list_jobs,
            "show_job": self.show_job,
            "cancel_job": self.cancel_job,
            "set_priority": self.set_priority,
            "hold_job": self.hold_job,
            "release_job": self.release_job,
            "explain_job": self.explain_job,
            "list_runs": self.list_runs,
            "list_summaries": self.list_summaries,
            "show_timeline": self.show_timeline,
            "list_plans": self.list_plans,
            "show_plan": self.show_plan,
            "list_nodes": self.list_nodes,
            "drain_node": self.drain_node,
            "restore_node": self.restore_node,
            "remove_node": self.remove_node,
            "show_status": self.show_status,
            "show_policy": self.show_policy,
            "set_policy": self.set_policy,
            "list_policies": self.list_policies,
            "list_settings": self.list_settings,
            "show_caller": self.show_caller,
            "show_output": self.show_output,
            "list_events": self.list_events,
        }
        return [
            *(
                web.route(each.method, each.path, self._guarded(handlers[each.name], each))
                for each in OPERATIONS
            ),
            web.get("/openapi.json", self._answered(self.show_document)),
            *static.routes(),
        ]

    def _guarded(self, handler: Handler, operation: Operation) -> Handler:
        """The handler behind authorization and the check of the query."""

        async def guarded(request: web.Request) -> web.StreamResponse:
            request[CALLER] = self._authorization.admit(
                shown_in(request.headers), request.remote or "", operation.role, operation.name
            )
            request[JUDGED_AT] = time.monotonic()
            request[QUERY] = decode_query(operation.query, request.query)
            return await handler(request)

        return self._answered(guarded)

    def _answered(self, handler: Handler) -> Handler:
        """The handler, its refusals turned into responses, and the clock in every response."""

        async def answered(request: web.Request) -> web.StreamResponse:
            try:
                response = await handler(request)
            except Refusal as refusal:
                response = refuse(refusal.problem)
            except Unavailable as error:
                response = refuse(problems.unavailable(str(error)))
            if not response.prepared:
                response.headers.update(self._time())
            return response

        return answered

    def _time(self) -> dict[str, str]:
        origin, speed = self._settings.clock_origin, self._clock.cluster_s(1.0)
        clock = ClockView(now=self._clock.now(), origin=origin, speed=speed)
        return {CLOCK: msgspec.json.encode(clock).decode()}

    async def show_document(self, request: web.Request) -> web.Response:
        decode_query(NoQuery, request.query)
        return web.Response(body=document(), content_type="application/json")

    # ---- jobs

    async def submit_job(self, request: web.Request) -> web.Response:
        key = _key(request)
        job = await self._body(request, JobFile)
        repeat = f"the job may still be stored: submit it again with {KEY} {key}"
        kind = SubmitHeld if _query(request, SubmitQuery).hold else Submit
        done = await self._forwarding.ask(kind(job=job, key=key, caller=request[CALLER]), Submitted, repeat)
        headers = {"Location": f"/v1/jobs/{done.job_id}", KEY: key}
        return answer(done, 201 if done.created else 200, headers)

    async def list_jobs(self, request: web.Request) -> web.Response:
        wanted = _query(request, JobsQuery)
        question = ListJobs(
            states=wanted.state,
            project=wanted.project,
            user=wanted.user,
            sort=wanted.sort,
            after=position_of(wanted.after),
            limit=wanted.limit,
        )
        refused = problems.conflict if wanted.after is None else partial(problems.invalid, "$.after")
        page = await self._monitor(question, JobPage, refused)
        return answer(msgspec.structs.replace(page, next=token_of(page.next)))

    async def show_job(self, request: web.Request) -> web.Response:
        return answer(await self._job(_id(request, JobId, "job")))

    async def _job(self, job_id: JobId) -> JobView:
        """The job as the monitor, or for a newer one the core, knows it. Raises Refusal."""
        view = await self._asked(ShowJob(job_id=job_id))
        return view if isinstance(view, JobView) else await self._fresh(job_id, view)

    async def _fresh(self, job_id: JobId, reply: Message) -> JobView:
        """A job that the monitor does not know, according to its `reply`. Raises Refusal."""
        monitor_seq = reply.seq if isinstance(reply, Refused) else 0
        return await self._forwarding.ask(ShowFresh(job_id=job_id, monitor_seq=monitor_seq), JobView)

    async def cancel_job(self, request: web.Request) -> web.Response:
        asked = Cancel(job_id=_id(request, JobId, "job"), caller=request[CALLER])
        done = await self._forwarding.ask(asked, Cancelled)
        return answer(done, 202)

    async def set_priority(self, request: web.Request) -> web.Response:
        job_id, choice = _id(request, JobId, "job"), await self._body(request, PriorityChoice)
        asked = SetPriority(job_id=job_id, priority=choice.priority, caller=request[CALLER])
        return answer(await self._forwarding.ask(asked, JobPriority), 202)

    async def hold_job(self, request: web.Request) -> web.Response:
        return await self._set_hold(request, held=True)

    async def release_job(self, request: web.Request) -> web.Response:
        return await self._set_hold(request, held=False)

    async def _set_hold(self, request: web.Request, *, held: bool) -> web.Response:
        asked = SetHold(job_id=_id(request, JobId, "job"), held=held, caller=request[CALLER])
        return answer(await self._forwarding.ask(asked, JobHold), 202)

    async def explain_job(self, request: web.Request) -> web.Response:
        job_id = _id(request, JobId, "job")
        view = await self._asked(ExplainJob(job_id=job_id))
        if isinstance(view, Refused):
            fresh = await self._fresh(job_id, view)
            view = _why_fresh(fresh)
        return answer(view)

    # ---- the whole cluster

    async def list_runs(self, request: web.Request) -> web.Response:
        question = ListRuns(job_id=_id(request, JobId, "job"))
        return answer(await self._monitor(question, RunPage, problems.not_found))

    async def list_summaries(self, request: web.Request) -> web.Response:
        wanted = _query(request, SummariesQuery)
        return answer(await self._monitor(ListSummaries(which=wanted.which, limit=wanted.limit), SummaryPage))

    async def show_timeline(self, request: web.Request) -> web.Response:
        wanted = _query(request, TimelineQuery)
        return answer(await self._monitor(ShowTimeline(after=wanted.after, limit=wanted.limit), TimelineView))

    async def list_plans(self, request: web.Request) -> web.Response:
        wanted = _query(request, PlansQuery)
        return answer(await self._monitor(ListPlans(limit=wanted.limit), PlanPage))

    async def show_plan(self, request: web.Request) -> web.Response:
        question = ShowPlan(plan_id=_id(request, PlanId, "plan"))
        return answer(await self._monitor(question, PlanDetail, problems.not_found))

    # ---- nodes, status, policy

    async def list_nodes(self, _: web.Request) -> web.Response:
        return answer(await self._monitor(ListNodes(), NodePage))

    async def drain_node(self, request: web.Request) -> web.Response:
        return await self._set_drain(request, draining=True)

    async def restore_node(self, request: web.Request) -> web.Response:
        return await self._set_drain(request, draining=False)

    async def _set_drain(self, request: web.Request, *, draining: bool) -> web.Response:
        question = SetDrain(node_id=_id(request, NodeId, "node"), draining=draining, caller=request[CALLER])
        return answer(await self._forwarding.ask(question, NodeDrain), 202)

    async def remove_node(self, request: web.Request) -> web.Response:
        question = RemoveNode(node_id=_id(request, NodeId, "node"), caller=request[CALLER])
        return answer(await self._forwarding.ask(question, NodeRemoval), 202)

    async def show_status(self, _: web.Request) -> web.Response:
        status = await self._monitor(ShowStatus(), StatusView)
        found = await reports(self._bus, unix_by(self._clock, self._settings))
        return answer(msgspec.structs.replace(status, services=found))

    async def show_policy(self, _: web.Request) -> web.Response:
        return answer(await self._forwarding.ask(ShowPolicy(), PolicyChoice))

    async def list_policies(self, _: web.Request) -> web.Response:
        return answer(await self._forwarding.ask(ShowPolicies(), PolicyPage))

    async def list_settings(self, _: web.Request) -> web.Response:
        return answer(self._in_force)

    async def show_caller(self, request: web.Request) -> web.Response:
        return answer(request[CALLER])

    async def set_policy(self, request: web.Request) -> web.Response:
        choice = await self._body(request, PolicyChoice)
        if _planner_judges(choice.policy):
            await self._judge(choice.policy)
        asked = SetPolicy(policy=choice.policy, caller=request[CALLER])
        return answer(await self._forwarding.ask(asked, PolicyChoice))

    async def _judge(self, policy: str) -> None:
        """Raises Refusal for a policy that cannot plan, Unavailable if no planner answers.

        The planner's process of policies loads it, once that has decided the plan in the making.
        """
        settings = self._settings
        limit_s = settings.solve_deadline_real_s + settings.policy_load_real_s + settings.ask_timeout_real_s
        reply = await self._asked(JudgePolicy(policy=policy), limit_s)
        if isinstance(reply, Refused):
            raise Unavailable(reply.reason)
        assert isinstance(reply, PolicyVerdict)
        if reply.unfit:
            raise Refusal(problems.invalid("$.policy", reply.unfit))

    # ---- what jobs print

    async def show_output(self, request: web.Request) -> web.StreamResponse:
        wanted = _query(request, OutputQuery)
        job_id = _id(request, JobId, "job")

        with self._follower(follow=wanted.follow):
            await self._job(job_id)  # an unknown job is refused before the first line
            reader = Reader(
                self._bus,
                job_id,
                rank=wanted.rank,
                newest=wanted.newest,
                limit_real_s=self._settings.ask_timeout_real_s,
            )

            found = output_lines(
                reader,
                lambda: self._job(job_id),
                wanted.newest,
                follow=wanted.follow,
                listening=lambda: self._listens(request),
            )
            async with contextlib.aclosing(found):
                first = [] if wanted.rank is None else await anext(found)  # an unknown rank, too

                async def write(response: web.StreamResponse) -> None:
                    await response.write(encoded(first))
                    async for lines in found:
                        await response.write(encoded(lines))

                return await self._streamed(request, write, endless=False)

    # ---- events

    async def list_events(self, request: web.Request) -> web.StreamResponse:
        wanted = _query(request, EventsQuery)
        with self._follower(follow=wanted.follow):
            last = await self._bus.last_seq()
            if wanted.after > last:  # a follower would wait, and miss all facts up to that one
                raise Refusal(
                    problems.invalid("$.after", f"the newest fact is {last}: this is not the same log")
                )

            async def write(response: web.StreamResponse) -> None:
                written = 0
                async with contextlib.aclosing(self._events(request, wanted, last)) as found:
                    async for record in found:
                        if not _asked_for(record, wanted):
                            continue
                        await response.write(line(record))
                        written += 1
                        if written == wanted.limit:
                            return

            return await self._streamed(request, write, endless=wanted.follow)

    @contextlib.contextmanager
    def _follower(self, *, follow: bool) -> Iterator[None]:
        """Count a follower until its response has ended, if the request asks to follow.

        Raises Refusal while FOLLOWERS_MAX are counted; so a refused request costs NATS nothing.
        """
        if follow and self._followers >= FOLLOWERS_MAX:
            reason = f"{FOLLOWERS_MAX} clients follow already, as many as may; try again later"
            raise Refusal(problems.too_many(reason))
        self._followers += follow
        try:
            yield
        finally:
            self._followers -= follow

    async def _streamed(
        self,
        request: web.Request,
        write: Callable[[web.StreamResponse], Awaitable[None]],
        *,
        endless: bool,
    ) -> web.StreamResponse:
        """A response of lines. One that is not `endless` ends with a problem where lines are missing."""
        headers = {"Content-Type": LINES, "X-Accel-Buffering": "no"} | self._time()
        response = TimedResponse(headers=headers)
        try:
            await response.prepare(request)
            if request.method == hdrs.METH_HEAD:
                return response  # aiohttp would write the lines after a head that announces none
            try:
                await write(response)
            except (Unavailable, Damaged, Refusal) as error:
                if not endless or isinstance(error, Damaged):
                    await response.write(problem_line(str(error)))
        except ConnectionResetError:  # the client hung up, or does not read
            if request.transport is not None:
                abort(request.transport)
        return response

    def _listens(self, request: web.Request) -> bool:
        """Whether a follower gets more lines: it is connected, this server runs, and its token is valid."""
        here = request.transport is not None and not request.transport.is_closing()
        return here and not ends(request) and self._still_authorized(request)

    def _still_authorized(self, request: web.Request) -> bool:
        now = time.monotonic()
        if now - request[JUDGED_AT] < JUDGED_AGAIN_REAL_S:
            return True
        request[JUDGED_AT] = now
        return self._authorization.still(shown_in(request.headers), request[CALLER])

    async def _events(
        self, request: web.Request, wanted: EventsQuery, newest: int
    ) -> AsyncGenerator[Record, None]:
        """Facts, among them those that `wanted` asks for; `newest`: the newest sequence at the request."""

        def listening() -> bool:
            return self._listens(request)

        after = wanted.after
        if wanted.newest is not None:
            for record in await self._newest(wanted, newest, listening):
                yield record
            after = newest
        last = None if wanted.follow else newest
        if wanted.job:
            known, after = await self._of_job(wanted.job, after, last)
            for record in known:
                yield record
        idle_real_s = HUNG_UP_POLL_REAL_S if wanted.follow else self._settings.ask_timeout_real_s
        async with contextlib.aclosing(
            records(self._bus, after, last, idle_real_s=idle_real_s, wanted=listening)
        ) as stored:
            async for record in stored:
                if wanted.follow and not listening():
                    return
                yield record

    async def _newest(
        self, wanted: EventsQuery, last: int, listening: Callable[[], bool]
    ) -> Iterable[Record]:
        """The last facts that `wanted` asks for, as many as its `newest`, up to sequence `last`."""
        count = wanted.newest or 0
        # Without a job all facts are wanted, so the newest ones are at the end of the stream.
        after = wanted.after if wanted.job else max(wanted.after, last - count)
        found: deque[Record] = deque(maxlen=count)
        idle_real_s = self._settings.ask_timeout_real_s
        if wanted.job:
            known, after = await self._of_job(wanted.job, after, last, count)
            found.extend(record for record in known if _asked_for(record, wanted))
        async with contextlib.aclosing(
            records(self._bus, after, last, idle_real_s=idle_real_s, wanted=listening)
        ) as stored:
            async for record in stored:
                if _asked_for(record, wanted):
                    found.append(record)
        return found

    async def _of_job(self, job: str, after: int, last: int | None, newest: int | None = None) -> Fetched:
        """The facts about a job without reading the whole stream, and from where to read on in it."""
        wanted = Wanted(job=job, after=after, last=last, newest=newest)
        return await fetched(self._bus, wanted, self._settings.ask_timeout_real_s)

    # ---- bodies and the monitor

    async def _body(self, request: web.Request, kind: type[B]) -> B:
        try:
            async with asyncio.timeout(BODY_LIMIT_S):
                body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            raise Refusal(problems.too_large(self._settings.web_max_body_bytes)) from None
        except web.RequestPayloadError:
            reason = "the body is not encoded as Content-Encoding and Transfer-Encoding say"
            raise Refusal(problems.malformed(reason)) from None
        except TimeoutError:
            raise Refusal(problems.too_slow(BODY_LIMIT_S)) from None
        return decode_body(kind, request.content_type, body)

    async def _asked(self, question: Question, limit_s: float | None = None) -> Message:
        """The reply of another service. Raises Unavailable; Refusal if the service failed at the question."""
        reply = await self._bus.ask(question, limit_s or self._settings.ask_timeout_real_s)
        if isinstance(reply, Refused) and reply.failed:
            service = question.subject.rpartition(".")[2]
            raise Refusal(problems.failed(f"the {service} failed at this: {reply.reason}"))
        return reply

    async def _monitor(
        self, question: Question, kind: type[M], refused: Callable[[str], Problem] = problems.conflict
    ) -> M:
        """The monitor's reply. Raises Unavailable; Refusal, with what `refused` makes of the reason."""
        reply = await self._asked(question)
        if isinstance(reply, Refused):
            raise Refusal(refused(reply.reason))
        assert isinstance(reply, kind)
        return reply


def _asked_for(record: Record, wanted: EventsQuery) -> bool:
    return record.event.at >= wanted.since and about(record.event, wanted.job)


def _planner_judges(policy: str) -> bool:
    """Whether the planner has to load the policy: only its code shows its options, and that it is one."""
    try:
        name, options = parted(policy)
    except ValueError:
        return False
    return bool(options) or ":" in name


def _query(request: web.Request, kind: type[Q]) -> Q:
    wanted = request[QUERY]
    assert isinstance(wanted, kind)
    return wanted


def _id(request: web.Request, kind: type[K], what: str) -> K:
    """The id in the path; none that cannot be one is known."""
    text = request.match_info["id"]
    try:
        return msgspec.convert(text, kind)
    except msgspec.ValidationError:
        raise Refusal(problems.unknown(f"{what} {text}")) from None


def _why_fresh(job: JobView) -> WhyView:
    """As the monitor says it, of a job that it does not know yet."""
    reason, detail, since = Waiting.PROFILING, "submitted just now", None
    if (hold := job.hold) is not None:
        reason, detail, since = Waiting.ON_HOLD, f"by {hold.by}" if hold.by else "", hold.at
    return WhyView(
        job_id=job.job_id, state=job.state, reason=reason, detail=detail, since=since, hold=job.hold
    )


def _key(request: web.Request) -> str:
    """The submitter's idempotency key; without one every submission is new. Raises Refusal."""
    keys = request.headers.getall(KEY, ())
    if not keys:
        return uuid.uuid4().hex
    if fault := "is given more than once" if len(keys) > 1 else key_fault(keys[0]):
        raise Refusal(problems.malformed(fault, KEY))
    return keys[0]
