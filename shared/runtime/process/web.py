"""The small web server of every service: health, readiness, metrics, and the service's own routes.

Errors leave as `application/problem+json` (RFC 9457). Bodies are bounded, and the time to send a request is
too (`client_timeouts`). A handler refuses with `Refusal`.
"""

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from http import HTTPStatus
from typing import Protocol

import msgspec
import structlog
from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from schemas.quarantine import Death
from schemas.settings import Settings
from schemas.views import Problem, Readiness, ServiceView
from shared.runtime.bus.accounts import is_agent
from shared.runtime.bus.contract import Bus, Unavailable
from shared.runtime.process.client_timeouts import ClientTimeouts
from shared.runtime.process.metrics import CountsCollector, MetricsCollector
from shared.runtime.process.reports import report_of_agent, reports
from shared.runtime.process.stream_ends import announce_end
from shared.runtime.service import Service

SHUTDOWN_S = 2.0

log = structlog.get_logger()


CLUSTER = "Hopyard-Cluster"
"""header: name of the cluster that answers"""
NOT_READY = "not caught up with the stream, or the bus is gone"
WAITS = "there is no connection to NATS, or it stores nothing: the service waits for it"
STARTS = "the service starts; an agent without a node waits for one that no other agent has"
RETRY_AFTER_S = 2
"""real seconds, sent with 503"""
TROUBLED = "it has troubles; its status names them"


class Refusal(Exception):
    """Raised by a handler that refuses a request: what is wrong, and in which field."""

    def __init__(self, status: int, detail: str, field: str | None = None) -> None:
        super().__init__(detail)
        self.problem = Problem(title=HTTPStatus(status).phrase, status=status, detail=detail, field=field)


class ShellStatus(Protocol):
    """The shell's state, for the web server."""

    @property
    def counts(self) -> msgspec.Struct: ...

    def ready(self) -> bool: ...

    def stalled(self) -> str:
        """Work that has been outstanding for too long; empty if none has."""
        ...


class Site(msgspec.Struct, frozen=True):
    """A listening web server."""

    port: int
    close: Callable[[], Awaitable[None]]


async def serve(
    settings: Settings,
    service: Service,
    shell: ShellStatus,
    bus: Bus,
    *,
    now: Callable[[], float] = time.time,
) -> Site:
    """Listen on the service's address. `now`: Unix time. Raises OSError when the port is taken."""
    registry = CollectorRegistry()
    counts = {"bus": bus.counts, "shell": shell.counts}
    registry.register(CountsCollector(counts, {"ready": shell.ready, "bus_connected": bus.connected}))
    if service.metrics is not None:
        registry.register(MetricsCollector(service.metrics))
    app = application(
        settings,
        ready=shell.ready,
        why=lambda: shell.stalled() or bus.why_not_stored() or NOT_READY,
        services=lambda: report_of_agent(bus, service.name) if is_agent(service.name) else reports(bus, now),
        registry=registry,
        routes=service.routes() if service.routes else (),
    )
    return await listen(app, settings.web_host, settings.web_port, tls_of(settings))


def waiting_application(settings: Settings, why: Callable[[], str]) -> web.Application:
    """For a process that has no service yet: it says that it lives, and refuses all else with the reason."""

    async def healthz(_: web.Request) -> web.Response:
        return json_response({"status": "alive"})

    async def refuse(_: web.Request) -> web.Response:
        raise Refusal(503, why())

    app = web.Application(middlewares=[_problems])
    app.add_routes([web.get("/healthz", healthz), web.route("*", "/{path:.*}", refuse)])
    app.on_response_prepare.append(_named(settings.cluster_name))
    return app


def tls_of(settings: Settings) -> ssl.SSLContext | None:
    """The TLS context; None for plain HTTP. Raises OSError, ValueError for an unusable certificate or key."""
    if not settings.web_certificate:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(settings.web_certificate, settings.web_key)
    except ssl.SSLError as error:
        raise ValueError(f"{settings.web_certificate}, {settings.web_key}: {error.reason}") from None
    return context


async def listen(app: web.Application, host: str, port: int, tls: ssl.SSLContext | None = None) -> Site:
    """Serve an application; port 0 takes any free one. If this fails or is cancelled, nothing listens."""
    timeouts = ClientTimeouts()
    app.middlewares.insert(0, timeouts.middleware())
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_S)
    await runner.setup()
    starting = asyncio.create_task(web.TCPSite(runner, host, port, ssl_context=tls).start())
    try:
        await asyncio.shield(starting)  # cancelled half-way it may listen, and could not be closed
    except BaseException:
        await asyncio.wait([starting])
        await runner.cleanup()
        raise
    assert runner.server is not None, "it is set up"
    watch = asyncio.create_task(timeouts.watch(runner.server))

    async def close() -> None:
        watch.cancel()
        await runner.cleanup()

    return Site(port=int(runner.addresses[0][1]), close=close)


def application(
    settings: Settings,
    *,
    ready: Callable[[], bool],
    why: Callable[[], str] = lambda: NOT_READY,
    services: Callable[[], Awaitable[Sequence[ServiceView]]],
    registry: CollectorRegistry,
    routes: Iterable[web.AbstractRouteDef] = (),
) -> web.Application:
    app = web.Application(
        client_max_size=settings.web_max_body_bytes, middlewares=[_measured(registry), _problems]
    )
    app.add_routes([*_own_routes(ready, why, services, registry), *routes])
    announce_end(app)
    app.on_response_prepare.append(_named(settings.cluster_name))
    return app


def json_response(body: object, status: int = 200, content_type: str = "application/json") -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=status, content_type=content_type)


def _named(cluster: str) -> Callable[[web.Request, web.StreamResponse], Awaitable[None]]:
    """Middleware: answers carry the cluster's name, if it has one."""

    async def name(_: web.Request, response: web.StreamResponse) -> None:
        if cluster:
            response.headers[CLUSTER] = cluster

    return name


def _own_routes(
    ready: Callable[[], bool],
    why: Callable[[], str],
    services: Callable[[], Awaitable[Sequence[ServiceView]]],
    registry: CollectorRegistry,
) -> list[web.RouteDef]:
    async def healthz(_: web.Request) -> web.Response:
        return json_response({"status": "alive"})

    async def readyz(_: web.Request) -> web.Response:
        if not ready():
            raise Refusal(503, why())
        return json_response(Readiness(services=tuple(_outlined(each) for each in await services())))

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    return [web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)]


def _outlined(service: ServiceView) -> ServiceView:
    """A report without its texts, for requests without a token: a text may name a job, a user or a path."""
    quarantined = tuple([_kind_of(death) for death in service.quarantined])
    troubles = (TROUBLED,) if service.troubles else ()
    return msgspec.structs.replace(service, last_error="", troubles=troubles, quarantined=quarantined)


def _kind_of(death: Death) -> Death:
    """What a quarantined fact is, without the job or node that it names, or the text of the error."""
    entity, fact = death.fact.split(".")
    error = death.error.partition(":")[0]
    return msgspec.structs.replace(death, subject=f"hopyard.{entity}.*.{fact}", error=error)


def _measured(registry: CollectorRegistry) -> Middleware:
    seconds = Histogram(
        "hopyard_http_request_seconds",
        "Time to answer a request.",
        ["method", "route", "status"],
        registry=registry,
    )

    @web.middleware
    async def measure(request: web.Request, handler: Handler) -> web.StreamResponse:
        began = time.perf_counter()
        response = await handler(request)
        resource = request.match_info.route.resource
        # The route's pattern, not the path: a label for every job would never stop growing.
        route = resource.canonical if resource is not None else "unknown"
        seconds.labels(request.method, route, response.status).observe(time.perf_counter() - began)
        return response

    return measure


@web.middleware
async def _problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except Refusal as refusal:
        return _problem(refusal.problem)
    except web.HTTPException as error:
        if error.status < HTTPStatus.BAD_REQUEST:
            raise
        absent = isinstance(error, web.HTTPNotFound | web.HTTPMethodNotAllowed)
        detail = f"there is no {request.method} {request.path} here" if absent else error.text or ""
        answer = _problem(Problem(title=error.reason, status=error.status, detail=detail))
        if hdrs.ALLOW in error.headers:  # the methods that there are (RFC 9110)
            answer.headers[hdrs.ALLOW] = error.headers[hdrs.ALLOW]
        return answer
    except Unavailable as error:
        return _problem(Refusal(503, str(error)).problem)
    except Exception:
        log.exception("request failed", method=request.method, path=request.path)
        return _problem(Refusal(500, "the service failed; its log says how").problem)


def _problem(problem: Problem) -> web.Response:
    response = json_response(problem, problem.status, "application/problem+json")
    if problem.status == HTTPStatus.SERVICE_UNAVAILABLE:
        response.headers[hdrs.RETRY_AFTER] = str(RETRY_AFTER_S)
    return response
