import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from hopyard.api.blocking import Blocking
from hopyard.api.client import ApiRefusal, Client
from hopyard.api.session import Session
from hopyard.api.transport import KEEP_ALIVE, Transport
from hopyard.failures import Failure, Unreachable
from schemas.events import JobSubmitted
from schemas.ids import JobId
from schemas.views import ClockView, JobPage, PolicyChoice
from tests.hopyard.cli_builders import job_view
from tests.hopyard.cli_server import CannedApi, canned_api

Of = Callable[[str], Client]


def blocking(url: str) -> Client:
    return Client(url, Blocking())


def in_a_session(url: str) -> Client:
    return Client(url, Session(url))


@pytest.fixture(params=[blocking, in_a_session])
def client_of(request: pytest.FixtureRequest) -> Of:
    """The same over both ways of sending requests."""
    return cast("Of", request.param)


@pytest.fixture
def api() -> Iterator[CannedApi]:
    with canned_api() as server:
        yield server


def alive_looked_at_in_s(port: int) -> list[float]:
    """Seconds until Linux looks whether the other side is there, for each connection to the port."""
    rows = (row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:])
    timers = [row[5].split(":") for row in rows if row[2].endswith(f":{port:04X}") and row[3] == "01"]
    return [int(left, 16) / os.sysconf("SC_CLK_TCK") for kind, left in timers if kind == "02"]


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs Linux's list of connections")
async def test_a_server_that_is_gone_without_a_word_is_noticed(client_of: Of, api: CannedApi) -> None:
    """Who followed facts waited for ever once the machine of the API had lost its power."""
    api.says("GET /v1/policy", PolicyChoice(policy="las"))
    async with client_of(api.url) as client:
        await client.policy()
        looks = alive_looked_at_in_s(int(api.url.rpartition(":")[2]))
    assert len(looks) == 1
    assert 0.0 < looks[0] <= KEEP_ALIVE["TCP_KEEPIDLE"]


async def test_jobs_are_gathered_page_by_page(client_of: Of, api: CannedApi) -> None:
    first = JobPage(jobs=(job_view("job-1"), job_view("job-2")), next="there")
    api.says("GET /v1/jobs", first, JobPage(jobs=(job_view("job-3"),)))
    async with client_of(api.url) as client:
        page = await client.jobs(limit=500)
    assert [job.job_id for job in page.jobs] == ["job-1", "job-2", "job-3"]
    assert api.requests[1][1]["after"] == "there"


async def test_no_more_jobs_are_asked_for_than_wanted(client_of: Of, api: CannedApi) -> None:
    api.says("GET /v1/jobs", JobPage(jobs=(job_view("job-1"),), next="there"))
    async with client_of(api.url) as client:
        page = await client.jobs(limit=2)
    assert [query["limit"] for _, query, _, _ in api.requests] == ["2", "1"]
    assert page.next == "there"


async def test_the_cluster_s_clock_is_known_after_an_answer(client_of: Of, api: CannedApi) -> None:
    api.says("GET /v1/jobs", JobPage(jobs=()))
    api.keeps_time(now=50.0, origin=1000.0, speed=60.0)
    async with client_of(api.url) as client:
        assert client.clock is None
        await client.jobs()
        assert client.clock == ClockView(now=50.0, origin=1000.0, speed=60.0)


@pytest.mark.parametrize("said", [None, b"", b"noon", b'{"now": 1}'])
async def test_without_a_header_for_it_the_clock_is_unknown(
    client_of: Of, api: CannedApi, said: bytes | None
) -> None:
    api.says("GET /v1/jobs", JobPage(jobs=()))
    api.clock = said
    async with client_of(api.url) as client:
        await client.jobs()
        assert client.clock is None


async def test_an_api_that_does_not_answer_in_time_is_reported_in_words(
    client_of: Of, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hopyard.api.blocking.TIMEOUT_S", 0.2)
    monkeypatch.setattr("hopyard.api.session.TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        async with client_of(f"http://127.0.0.1:{mute.getsockname()[1]}") as client:
            with pytest.raises(Unreachable, match=r"took the call and did not answer in time$"):
                await client.jobs()
            with pytest.raises(Unreachable, match=r"took the call and did not answer in time$"):
                [line async for line in client.events(follow=True)]


async def test_the_choice_of_a_policy_may_take_longer_than_other_requests(
    client_of: Of, api: CannedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planner loads it before it says whether it can plan."""
    monkeypatch.setattr("hopyard.api.blocking.TIMEOUT_S", 0.2)
    monkeypatch.setattr("hopyard.api.session.TIMEOUT_S", 0.2)
    api.refuses("PUT /v1/policy", 422, "own:Hangs was stopped: no answer within 10 s", "$.policy")
    api.takes_s = 0.5
    async with client_of(api.url) as client:
        with pytest.raises(ApiRefusal, match="own:Hangs was stopped"):
            await client.set_policy(PolicyChoice(policy="own:Hangs"))


def event_line(seq: int, padding: int = 0) -> bytes:
    fact = b'{"fact":"policy.chosen","at":1.0,"policy":"%s"}' % (b"x" * padding)
    return b'{"seq":%d,"event":%s}\n' % (seq, fact)


async def test_a_line_may_be_longer_than_any_buffer(client_of: Of, api: CannedApi) -> None:
    api.says_bytes("GET /v1/events", event_line(1, padding=600_000) + event_line(2))
    async with client_of(api.url) as client:
        lines = [line async for line in client.events()]
    assert [line.seq for line in lines] == [1, 2]


async def test_the_event_log_is_read_on_where_a_full_answer_ended(client_of: Of, api: CannedApi) -> None:
    full = b"".join(event_line(seq) for seq in range(1, 10_001))
    api.says_bytes("GET /v1/events", full, event_line(10_007))
    async with client_of(api.url) as client:
        seqs = [line.seq async for line in client.events()]
    assert len(seqs) == 10_001
    assert [query["after"] for _, query, _, _ in api.requests] == ["0", "10000"]


async def test_an_event_is_a_fact_again(client_of: Of, api: CannedApi) -> None:
    view = job_view()
    fact = JobSubmitted(at=2.0, job_id=view.job_id, spec=view.spec, key="k")
    api.says("GET /v1/events", {"seq": 1, "event": fact})
    async with client_of(api.url) as client:
        (line,) = [line async for line in client.events()]
    assert line.fact() == fact


async def test_a_refusal_that_is_no_problem_document_is_shown_as_it_is(client_of: Of, api: CannedApi) -> None:
    api.says_bytes("GET /v1/policy", b"forbidden by the proxy", status=403)
    async with client_of(api.url) as client:
        with pytest.raises(ApiRefusal, match="forbidden by the proxy"):
            await client.policy()


async def test_of_a_web_page_in_place_of_the_api_the_status_is_shown(client_of: Of, api: CannedApi) -> None:
    api.says_bytes("GET /v1/policy", b"<!DOCTYPE html>\n<title>Error</title>", status=404)
    async with client_of(api.url) as client:
        with pytest.raises(ApiRefusal, match=r"^a web page with HTTP status 404 answers, not hopyard's API$"):
            await client.policy()


async def test_output_that_is_cut_off_is_a_failure(client_of: Of, api: CannedApi) -> None:
    lines = b'{"node":"n-0","text":"one"}\n{"problem":"cut off"}\n'
    api.says_bytes("GET /v1/jobs/train-1/output", lines)
    async with client_of(api.url) as client:
        with pytest.raises(Failure, match="cut off"):
            _ = [line async for line in client.output(JobId("train-1"), newest=10, follow=True)]


async def test_a_refused_event_log_is_a_refusal(client_of: Of, api: CannedApi) -> None:
    api.refuses("GET /v1/events", 404, "no such job")
    async with client_of(api.url) as client:
        with pytest.raises(ApiRefusal, match="no such job"):
            [line async for line in client.events(job="job-9")]


async def test_an_invalid_address_is_unreachable(client_of: Of) -> None:
    async with client_of("http://no such host") as client:
        with pytest.raises(Unreachable):
            await client.policy()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://127.0.0.1:9", "connection refused$"),
        ("http://hopyard.invalid", "(name|nodename|address).*$"),
        ("https://{plain}", "wrong version number|record layer failure"),
    ],
)
async def test_a_failed_connection_gives_its_reason(
    client_of: Of, api: CannedApi, url: str, words: str
) -> None:
    url = url.replace("{plain}", api.url.removeprefix("http://"))
    async with client_of(url) as client:
        with pytest.raises(Unreachable, match=f"^cannot reach {url}: .*(?:{words})"):
            await client.policy()


async def test_an_answer_that_breaks_off_is_no_answer(client_of: Of) -> None:
    """Its head promises more than comes, and then the line is closed."""

    def answer(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=answer, args=(listening,))
        thread.start()
        async with client_of(f"http://127.0.0.1:{listening.getsockname()[1]}") as client:
            with pytest.raises(Unreachable, match=r"its answer breaks off$"):
                await client.policy()
        thread.join()


async def test_a_redirect_is_followed(client_of: Of, api: CannedApi) -> None:
    api.moved["GET /v1/policy"] = "/elsewhere/v1/policy"
    api.says("GET /v1/policy", None, status=308)
    api.says("GET /elsewhere/v1/policy", PolicyChoice(policy="las"))
    async with client_of(api.url) as client:
        assert await client.policy() == PolicyChoice(policy="las")


async def test_a_redirect_without_end_is_given_up(client_of: Of, api: CannedApi) -> None:
    api.moved["GET /v1/policy"] = "/v1/policy"
    api.says("GET /v1/policy", None, status=302)
    async with client_of(api.url) as client:
        with pytest.raises(Unreachable):
            await client.policy()


async def test_a_redirected_change_keeps_its_body(client_of: Of, api: CannedApi) -> None:
    api.moved["PUT /v1/policy"] = "/elsewhere"
    api.says("PUT /v1/policy", None, status=307)
    api.says("PUT /elsewhere", PolicyChoice(policy="las"))
    async with client_of(api.url) as client:
        await client.set_policy(PolicyChoice(policy="las"))
    assert [body for _, _, _, body in api.requests] == [b'{"policy":"las"}'] * 2


@pytest.mark.parametrize("transport", [Blocking, lambda: Session("http://127.0.0.1")])
async def test_the_token_is_not_passed_on_to_another_server(
    api: CannedApi, transport: Callable[[], Transport]
) -> None:
    with canned_api() as other:
        api.moved["GET /v1/policy"] = f"{other.url}/v1/policy"
        api.says("GET /v1/policy", None, status=302)
        other.says("GET /v1/policy", PolicyChoice(policy="las"))
        async with Client(api.url, transport(), token="secret") as client:
            await client.policy()
    assert api.requests[0][2]["Authorization"] == "Bearer secret"
    assert "Authorization" not in other.requests[0][2]


async def test_an_address_may_contain_user_and_password(client_of: Of, api: CannedApi) -> None:
    """As a proxy in front of the API wants it."""
    api.says("GET /v1/policy", PolicyChoice(policy="las"))
    async with client_of(api.url.replace("//", "//ann:p%40ss@")) as client:
        await client.policy()
    assert api.requests[0][2]["Authorization"] == "Basic YW5uOnBAc3M="


async def test_names_and_values_arrive_as_they_were_given(client_of: Of, api: CannedApi) -> None:
    api.says("GET /v1/jobs", JobPage(jobs=()))
    async with client_of(f"{api.url}/") as client:
        await client.jobs(project="a&b c+ü%", states=["queued", "running"])
    assert api.requests[0][1] | {"limit": ""} == {
        "project": "a&b c+ü%",
        "state": "queued,running",
        "sort": "submitted",
        "limit": "",
    }
