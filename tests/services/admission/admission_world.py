"""Builders, a driver for the core, and a served API: everything has a default."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from schemas.base import Event, Message, Question
from schemas.cluster import Node
from schemas.events import (
    JobCancelled,
    JobCompleted,
    JobFailed,
    JobPreempted,
    JobProfiled,
    JobQueued,
    JobRejected,
    JobStarted,
    JobSubmitted,
    NodeJoined,
    PreemptReason,
)
from schemas.ids import GpuType, JobId, NodeId, PlacementId
from schemas.jobs import JobFile, JobSpec, Workload
from schemas.placement import Gang
from schemas.questions import MONITOR, Refused
from schemas.settings import Settings
from schemas.views import Submitted
from services.admission.core import Admission, CaughtUp
from services.admission.http.api import Api
from services.admission.http.authorization import Authorization
from services.admission.http.forwarding import Forwarding
from services.admission.questions import OwnQuestion, Submit, SubmitHeld
from shared.domain.core import Asked, Publish, Reply
from shared.domain.demand import job_spec
from shared.domain.policy_names import AcceptedPolicies
from shared.runtime.bus.memory import MemoryBus
from shared.runtime.clock import LoopClock
from shared.runtime.process.stream_ends import announce_end
from shared.runtime.service import Inbox
from shared.runtime.settings import describe

TOKEN = "open sesame"
"""an operator's; every request of a test shows it, unless it shows something else"""
WORKLOAD: dict[str, Any] = {"model": "resnet-50", "dataset": "imagenet", "batch_size": 128}


def shown(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def job_body(**over: object) -> dict[str, Any]:
    """A job as a user writes it, as a tree for JSON."""
    return {"name": "train", "workload": WORKLOAD, "gpus": [1, 2, 4], "samples": 1e6} | over


def job_file(**over: object) -> JobFile:
    return msgspec.convert(job_body(**over), JobFile)


def spec() -> JobSpec:
    return job_spec(job_file())


def node(node_id: str = "n-0", gpu_type: str = "v100", gpus: int = 8) -> Node:
    return Node(
        node_id=NodeId(node_id),
        gpu_type=GpuType(gpu_type),
        gpus=gpus,
        server="generic",
        link_bandwidth=1e10,
        network_bandwidth=1e9,
    )


def joined(node_id: str = "n-0", gpu_type: str = "v100", gpus: int = 8, life: str = "a") -> NodeJoined:
    return NodeJoined(
        at=0.0, node_id=NodeId(node_id), node=node(node_id, gpu_type, gpus), life=life, workers=()
    )


def submitted(job: str = "train-1", key: str = "key") -> JobSubmitted:
    return JobSubmitted(at=1.0, job_id=JobId(job), spec=spec(), key=key)


def job_facts(job: str = "train-1", key: str = "key") -> list[Event]:
    """One fact of every kind there is about jobs."""
    job_id, placement = JobId(job), PlacementId(f"pl-{job}")
    workload = Workload(**WORKLOAD)
    return [
        submitted(job, key),
        JobProfiled(at=2.0, job_id=job_id, workload=workload, modules={}, known=True),
        JobQueued(at=3.0, job_id=job_id, age_s=100.0, sensitivity=1.0, single_gpu={}),
        JobStarted(
            at=4.0,
            job_id=job_id,
            placement_id=placement,
            gang=Gang.of({NodeId("n-0"): 1}),
            learning_rate=None,
            global_batch=128,
        ),
        JobPreempted(
            at=5.0, job_id=job_id, placement_id=placement, reason=PreemptReason.PLAN, samples_done=10.0
        ),
        JobCompleted(at=6.0, job_id=job_id, placement_id=placement, samples_done=1e6),
        JobFailed(at=7.0, job_id=job_id, placement_id=placement, reason="exit 1"),
        JobCancelled(at=8.0, job_id=job_id),
        JobRejected(at=9.0, job_id=job_id, reason="runs nowhere"),
    ]


class Driver:
    """A core whose facts come straight back to it, as the stream would bring them.

    While `held`, they stay in flight.
    """

    def __init__(self, nodes: tuple[Node, ...] = (), *, caught_up: bool = True, **settings: object) -> None:
        in_force = msgspec.convert(settings, Settings)
        accepted = AcceptedPolicies(("hops", "fifo"), in_force.policy, in_force.policies_allowed.split())
        self.core = Admission(in_force, nodes=nodes, policies=accepted)
        self.published: list[Event] = []
        self.held = False
        self.now = 0.0
        if caught_up:
            self.core.handle(CaughtUp(), self.now)
        self._folded = 0
        self._tickets = itertools.count(1)

    def ask(self, question: OwnQuestion) -> Message:
        self.now += 1.0
        replies: list[Message] = []
        for effect in self.core.handle(Asked(next(self._tickets), question), self.now):
            match effect:
                case Publish(event):
                    self.published.append(event)
                case Reply(_, message):
                    replies.append(message)
        if not self.held:
            self.release()
        (reply,) = replies
        return reply

    def submit(self, key: str | None = None, *, held: bool = False, **job: object) -> Message:
        kind = SubmitHeld if held else Submit
        return self.ask(kind(job=job_file(**job), key=key or f"key-{self.now}"))

    def submit_id(self, key: str | None = None, *, held: bool = False, **job: object) -> JobId:
        reply = self.submit(key, held=held, **job)
        assert isinstance(reply, Submitted)
        return reply.job_id

    def fold(self, *facts: Event) -> None:
        for fact in facts:
            self.core.handle(fact, fact.at)

    def release(self) -> None:
        """Let what is in flight arrive."""
        self.held = False
        arriving, self._folded = self.published[self._folded :], len(self.published)
        self.fold(*arriving)


class Served:
    """The API over HTTP, a core behind it, and a monitor with prepared answers."""

    def __init__(
        self,
        driver: Driver,
        bus: MemoryBus,
        forwarding: Forwarding,
        authorization: Authorization,
        client: TestClient[web.Request, web.Application],
    ) -> None:
        self.driver = driver
        self.forwarding = forwarding
        self.authorization = authorization
        self.bus = bus
        self.client = client
        self.views: dict[type[Question], Message] = {}
        self.asked: list[Question] = []

    async def monitor(self, question: Question) -> Message:
        self.asked.append(question)
        return self.views.get(type(question), Refused(reason="not known"))

    async def call(
        self,
        method: str,
        path: str,
        status: int = 200,
        *,
        json: object = None,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[dict[str, Any], Mapping[str, str]]:
        """Body and headers of the response, which has the status."""
        async with self.client.request(method, path, json=json, data=data, headers=headers) as response:
            text = await response.text()
            assert response.status == status, text
            return msgspec.json.decode(text, type=dict[str, Any]), response.headers

    async def body(self, method: str, path: str, status: int = 200, json: object = None) -> dict[str, Any]:
        return (await self.call(method, path, status, json=json))[0]

    async def submit(self, key: str, **job: object) -> dict[str, Any]:
        """The body of the answer, with the status."""
        how = {"Idempotency-Key": key}
        async with self.client.post("/v1/jobs", json=job_body(**job), headers=how) as response:
            return {"status": response.status} | msgspec.json.decode(
                await response.read(), type=dict[str, Any]
            )


@contextlib.asynccontextmanager
async def serving(
    *, attached: bool = True, monitored: bool = True, bus: MemoryBus | None = None, **settings: object
) -> AsyncIterator[Served]:
    bus = bus or MemoryBus(LoopClock())
    limits = {"ask_timeout_real_s": 0.5, "web_max_body_bytes": 10_000, "api_token": TOKEN}
    in_force = msgspec.convert(limits | settings, Settings)
    driver = Driver((), caught_up=True, **settings)
    forwarding = Forwarding(bus, LoopClock(), in_force, driver.core)
    app = web.Application(client_max_size=in_force.web_max_body_bytes)
    announce_end(app)
    authorization = Authorization(in_force)
    app.add_routes(
        Api(
            bus, LoopClock(), in_force, forwarding, describe(in_force, {}), authorization=authorization
        ).routes()
    )
    async with TestClient(TestServer(app), headers=shown(TOKEN)) as client:
        served = Served(driver, bus, forwarding, authorization, client)
        if monitored:
            await bus.serve("monitor", MONITOR, served.monitor)
        task = asyncio.create_task(forwarding.attach(_inbox(driver, bus))) if attached else None
        while attached and not forwarding.is_open():
            await asyncio.sleep(0)
        yield served
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
    await bus.close()


def _inbox(driver: Driver, bus: MemoryBus) -> Inbox:
    async def ask(question: OwnQuestion) -> Message:
        already = len(driver.published)
        driver.held = True
        reply = driver.ask(question)
        await bus.publish(driver.published[already:])
        driver.release()
        return reply

    def put(message: msgspec.Struct) -> None:
        driver.core.handle(message, driver.now)

    return Inbox(put=put, ask=ask, replayed=lambda: True, seq=lambda: 0)
