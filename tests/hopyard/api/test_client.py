import socket
from collections.abc import Iterator

import pytest

from hopyard.api.client import ApiRefusal, Client
from hopyard.failures import Unreachable
from schemas.events import JobSubmitted
from schemas.views import ClockView, JobPage
from tests.hopyard.cli_builders import job_view
from tests.hopyard.cli_server import CannedApi, canned_api


@pytest.fixture
def api() -> Iterator[CannedApi]:
    with canned_api() as server:
        yield server


async def test_jobs_are_gathered_page_by_page(api: CannedApi) -> None:
    first = JobPage(jobs=(job_view("job-1"), job_view("job-2")), next="there")
    api.says("GET /v1/jobs", first, JobPage(jobs=(job_view("job-3"),)))
    async with Client(api.url) as client:
        page = await client.jobs(limit=500)
    assert [job.job_id for job in page.jobs] == ["job-1", "job-2", "job-3"]
    assert api.requests[1][1]["after"] == "there"


async def test_no_more_jobs_are_asked_for_than_wanted(api: CannedApi) -> None:
    api.says("GET /v1/jobs", JobPage(jobs=(job_view("job-1"),), next="there"))
    async with Client(api.url) as client:
        page = await client.jobs(limit=2)
    assert [query["limit"] for _, query, _, _ in api.requests] == ["2", "1"]
    assert page.next == "there"


async def test_the_cluster_s_clock_is_known_after_an_answer(api: CannedApi) -> None:
    api.says("GET /v1/jobs", JobPage(jobs=()))
    api.keeps_time(now=50.0, origin=1000.0, speed=60.0)
    async with Client(api.url) as client:
        assert client.clock is None
        await client.jobs()
        assert client.clock == ClockView(now=50.0, origin=1000.0, speed=60.0)


@pytest.mark.parametrize("said", [None, b"", b"noon", b'{"now": 1}'])
async def test_without_a_word_about_the_clock_it_is_not_known(api: CannedApi, said: bytes | None) -> None:
    api.says("GET /v1/jobs", JobPage(jobs=()))
    api.clock = said
    async with Client(api.url) as client:
        await client.jobs()
        assert client.clock is None


async def test_an_api_that_takes_a_call_and_does_not_answer_is_said_in_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hopyard.api.client.TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        async with Client(f"http://127.0.0.1:{mute.getsockname()[1]}") as client:
            with pytest.raises(Unreachable, match=r"took the call and did not answer in time$"):
                await client.jobs()


def event_line(seq: int, padding: int = 0) -> bytes:
    fact = b'{"fact":"policy.chosen","at":1.0,"policy":"%s"}' % (b"x" * padding)
    return b'{"seq":%d,"event":%s}\n' % (seq, fact)


async def test_a_line_may_be_longer_than_any_buffer(api: CannedApi) -> None:
    api.says_bytes("GET /v1/events", event_line(1, padding=600_000) + event_line(2))
    async with Client(api.url) as client:
        lines = [line async for line in client.events()]
    assert [line.seq for line in lines] == [1, 2]


async def test_the_event_log_is_read_on_where_a_full_answer_ended(api: CannedApi) -> None:
    full = b"".join(event_line(seq) for seq in range(1, 10_001))
    api.says_bytes("GET /v1/events", full, event_line(10_007))
    async with Client(api.url) as client:
        seqs = [line.seq async for line in client.events()]
    assert len(seqs) == 10_001
    assert [query["after"] for _, query, _, _ in api.requests] == ["0", "10000"]


async def test_an_event_is_a_fact_again(api: CannedApi) -> None:
    view = job_view()
    fact = JobSubmitted(at=2.0, job_id=view.job_id, spec=view.spec, key="k")
    api.says("GET /v1/events", {"seq": 1, "event": fact})
    async with Client(api.url) as client:
        (line,) = [line async for line in client.events()]
    assert line.fact() == fact


async def test_a_refusal_that_is_no_problem_document_is_shown_as_it_came(api: CannedApi) -> None:
    api.says_bytes("GET /v1/policy", b"forbidden by the proxy", status=403)
    async with Client(api.url) as client:
        with pytest.raises(ApiRefusal, match="forbidden by the proxy"):
            await client.policy()


async def test_a_refused_event_log_is_a_refusal(api: CannedApi) -> None:
    api.refuses("GET /v1/events", 404, "no such job")
    async with Client(api.url) as client:
        with pytest.raises(ApiRefusal, match="no such job"):
            [line async for line in client.events(job="job-9")]


async def test_an_address_that_is_none_is_unreachable() -> None:
    async with Client("http://no such host") as client:
        with pytest.raises(Unreachable):
            await client.policy()
