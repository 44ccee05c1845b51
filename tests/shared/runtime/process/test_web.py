import asyncio
import contextlib
from collections.abc import AsyncIterator

import aiohttp
import msgspec
import pytest
from aiohttp import web
from aiohttp.typedefs import Handler

from schemas.settings import Settings
from schemas.views import Problem, Readiness
from shared.runtime.bus.contract import Unavailable
from shared.runtime.bus.memory import MemoryBus
from shared.runtime.clock import LoopClock
from shared.runtime.process.logs import UNPARSED_MAX, configure_logs
from shared.runtime.process.ports import HeldPorts
from shared.runtime.process.reports import reported, reports
from shared.runtime.process.web import TROUBLED, Refusal, Site, json_response, listen, serve
from shared.runtime.service import Metric, Service


class Counted(msgspec.Struct):
    facts: int = 3
    handle_s: float = 1.5


class Shell:
    """What the web server shows of a shell."""

    def __init__(self) -> None:
        self.counts = Counted()
        self.is_ready = True
        self.owes = ""

    def ready(self) -> bool:
        return self.is_ready

    def stalled(self) -> str:
        return self.owes


class Web:
    """A running server and a client of it."""

    def __init__(self, site: Site, shell: Shell, session: aiohttp.ClientSession, bus: MemoryBus) -> None:
        self.bus = bus
        self.shell = shell
        self.site = site
        self._session = session

    async def call(self, method: str, path: str, body: bytes | None = None) -> tuple[int, str, bytes]:
        """Status, content type and body of the answer."""
        url = f"http://127.0.0.1:{self.site.port}{path}"
        async with self._session.request(method, url, data=body) as response:
            return response.status, response.content_type, await response.read()

    async def problem(self, method: str, path: str, body: bytes | None = None) -> Problem:
        status, content_type, data = await self.call(method, path, body)
        assert content_type == "application/problem+json"
        problem = msgspec.json.decode(data, type=Problem)
        assert problem.status == status
        return problem


def _raises(error: Exception) -> Handler:
    async def handler(_: web.Request) -> web.StreamResponse:
        raise error

    return handler


async def _echo(request: web.Request) -> web.StreamResponse:
    return json_response(len(await request.read()))


async def _job(request: web.Request) -> web.StreamResponse:
    return json_response({"job": request.match_info["job"]})


ROUTES = [
    web.post("/echo", _echo),
    web.get("/jobs/{job}", _job),
    web.get("/refused", _raises(Refusal(409, "it runs already", "$.name"))),
    web.get("/away", _raises(Unavailable("no bus"))),
    web.get("/broken", _raises(RuntimeError("secret of the house"))),
]


def _metrics() -> list[Metric]:
    jobs = {"queued": 2.0, "running": 1.0}
    states = [
        Metric(name="hopyard_jobs", help="Jobs.", value=n, labels={"state": s}) for s, n in jobs.items()
    ]
    return [*states, Metric(name="plans", help="Plans.", value=7.0, counter=True)]


def _service() -> Service:
    return Service(name="test", core=None, facts=(), routes=lambda: ROUTES, metrics=_metrics)  # type: ignore[arg-type]


@pytest.fixture
async def site() -> AsyncIterator[Web]:
    shell = Shell()
    settings = Settings(web_max_body_bytes=1_000)
    bus = MemoryBus(LoopClock())
    site = await serve(settings, _service(), shell, bus)
    async with aiohttp.ClientSession() as session:
        yield Web(site, shell, session, bus)
    await site.close()


async def test_a_living_service_says_so(site: Web) -> None:
    assert await site.call("GET", "/healthz") == (200, "application/json", b'{"status":"alive"}')


async def test_readiness_follows_the_shell(site: Web) -> None:
    assert (await site.call("GET", "/readyz"))[0] == 200
    site.shell.is_ready = False
    assert (await site.problem("GET", "/readyz")).status == 503
    assert (await site.call("GET", "/healthz"))[0] == 200


async def test_readiness_shows_how_every_service_is(site: Web) -> None:
    """Also those that ended, as the bus remembers them; what they said of it is for those with a token."""
    with contextlib.suppress(RuntimeError):
        async with reported(site.bus, "planner"):
            raise RuntimeError("out of ideas")
    [seen] = msgspec.json.decode((await site.call("GET", "/readyz"))[2], type=Readiness).services
    assert (seen.name, seen.state, seen.last_error) == ("planner", "failed", "")
    [known] = await reports(site.bus)
    assert known.last_error == "RuntimeError: out of ideas"


async def test_readiness_says_that_a_service_has_troubles_and_not_which(site: Web) -> None:
    async with reported(site.bus, "monitor") as reporter:
        assert reporter is not None
        renewing = asyncio.create_task(
            reporter.renew(ready=lambda: True, troubles=lambda: ["/home/ada/archive is empty"])
        )
        while not (await reports(site.bus))[0].troubles:
            await asyncio.sleep(0)
        body = (await site.call("GET", "/readyz"))[2]
        renewing.cancel()
    assert msgspec.json.decode(body, type=Readiness).services[0].troubles == (TROUBLED,)


async def test_metrics_show_counts_and_states(site: Web) -> None:
    text = (await site.call("GET", "/metrics"))[2].decode()
    assert "hopyard_shell_facts_total 3.0" in text
    assert "hopyard_shell_handle_seconds_total 1.5" in text
    assert "hopyard_bus_facts_published_total 0.0" in text
    assert "hopyard_ready 1.0" in text
    assert "hopyard_bus_connected 1.0" in text


async def test_metrics_show_the_numbers_of_the_service(site: Web) -> None:
    text = (await site.call("GET", "/metrics"))[2].decode()
    assert 'hopyard_jobs{state="queued"} 2.0\nhopyard_jobs{state="running"} 1.0' in text
    assert "# TYPE hopyard_plans_total counter\nhopyard_plans_total 7.0" in text


async def test_metrics_name_routes_and_not_jobs(site: Web) -> None:
    await site.call("GET", "/jobs/j-77")
    await site.call("GET", "/nowhere/j-78")
    text = (await site.call("GET", "/metrics"))[2].decode()
    assert 'hopyard_http_request_seconds_count{method="GET",route="/jobs/{job}",status="200"} 1.0' in text
    assert 'route="unknown",status="404"' in text
    assert "j-7" not in text


async def test_a_body_above_the_limit_is_refused(site: Web) -> None:
    assert (await site.problem("POST", "/echo", b" " * 2_000)).status == 413


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nowhere", 404), ("GET", "/echo", 405), ("GET", "/refused", 409), ("GET", "/away", 503)],
)
async def test_every_refusal_is_a_problem(site: Web, method: str, path: str, status: int) -> None:
    assert (await site.problem(method, path)).status == status


@pytest.mark.parametrize(("method", "path"), [("GET", "/nowhere"), ("GET", "/echo")])
async def test_a_call_that_is_not_served_is_named(site: Web, method: str, path: str) -> None:
    assert (await site.problem(method, path)).detail == f"there is no {method} {path} here"


async def test_a_refusal_names_its_field(site: Web) -> None:
    assert (await site.problem("GET", "/refused")).field == "$.name"


async def test_a_broken_handler_does_not_show_its_inside(
    site: Web, capsys: pytest.CaptureFixture[str]
) -> None:
    problem = await site.problem("GET", "/broken")
    assert problem.status == 500
    assert "secret" not in problem.detail
    assert "secret of the house" in "".join(capsys.readouterr())


async def test_answers_name_the_cluster_where_it_has_a_name() -> None:
    settings = Settings(web_port=0, cluster_name="lab-3")
    site = await serve(settings, _service(), Shell(), MemoryBus(LoopClock()))
    async with aiohttp.ClientSession() as session:
        for path in ("/healthz", "/nowhere"):
            async with session.get(f"http://127.0.0.1:{site.port}{path}") as response:
                assert response.headers["Hopyard-Cluster"] == "lab-3"
    await site.close()


async def test_a_port_that_is_taken_is_an_error(site: Web) -> None:
    settings = Settings(web_port=site.site.port)
    with pytest.raises(OSError, match="address already in use"):
        await serve(settings, _service(), Shell(), MemoryBus(LoopClock()))


@pytest.mark.parametrize("turns", range(12))
async def test_a_server_whose_start_is_cancelled_listens_no_more(turns: int) -> None:
    """One that had the port kept the service that followed from having it."""
    held = HeldPorts("127.0.0.1")
    [port] = held.ports
    starting = asyncio.create_task(listen(web.Application(), "127.0.0.1", port))
    for _ in range(turns):
        await asyncio.sleep(0)
    starting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await (await starting).close()
    await (await listen(web.Application(), "127.0.0.1", port)).close()


@pytest.mark.parametrize(
    ("request_", "status", "logged"),
    [
        (
            b"GET /healthz HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer a-secret\x01\r\n\r\n",
            b"400",
            "Error handling request from 127.0.0.1: BadHttpMessage",
        ),
        (
            b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\nContent-Encoding: gzip\r\n\r\na-secret",
            b"404",
            "Unhandled exception: RequestPayloadError",
        ),
    ],
)
async def test_a_malformed_request_is_logged_without_its_content(
    site: Web, capsys: pytest.CaptureFixture[str], request_: bytes, status: bytes, logged: str
) -> None:
    """A token with a control character is one: the library would log the header; of a body, a traceback."""
    configure_logs(Settings())
    for _ in range(2 * UNPARSED_MAX):
        reader, writer = await asyncio.open_connection("127.0.0.1", site.site.port)
        writer.write(request_)
        assert (await reader.readline()).split()[1] == status
        await reader.read()  # until the server has closed the connection
        writer.close()
    said = capsys.readouterr().err
    assert "a-secret" not in said
    lines = [msgspec.json.decode(line) for line in said.splitlines()]
    assert [line["event"] for line in lines] == [logged] * UNPARSED_MAX
    assert {line["level"] for line in lines} == {"warning"}
