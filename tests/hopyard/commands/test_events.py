"""events and logs."""

import json

import pytest

from hopyard.actions import follow
from schemas.views import PolicyChoice
from services.admission import problems
from tests.hopyard.cli_builders import status_view
from tests.hopyard.cli_line import Hopyard
from tests.hopyard.cli_server import CannedApi

EVENTS = b"""\
{"seq":1,"event":{"fact":"job.cancelled","at":3.25,"job_id":"job-1"}}
{"seq":4,"event":{"fact":"job.praised","at":40.0,"job_id":"job-1","by":"everybody","for":{"a":1}}}
"""


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "PAUSE_S", 0.0)


def followed(api: CannedApi, *parts: bytes) -> None:
    """A log that is cut off after each part, and at last for good."""
    api.says("GET /v1/status", status_view(at=7205.0))
    api.says("GET /v1/policy", PolicyChoice(policy="hops"))
    api.says_bytes("GET /v1/events", *parts, b'{"problem":"the log is damaged there"}\n')


def queries(api: CannedApi) -> list[dict[str, str]]:
    """Those for events."""
    return [query for name, query, _, _ in api.requests if name == "GET /v1/events"]


def test_events_prints_a_line_a_fact(hopyard: Hopyard, api: CannedApi) -> None:
    api.says_bytes("GET /v1/events", EVENTS)
    first, second = hopyard("events", "job-1", "--api", api.url).out.splitlines()
    assert first.split() == ["00:00:03.2", "job-1", "cancelled"]
    assert second.split() == ["00:00:40.0", "job-1", "job.praised", "job_id=job-1", "by=everybody"]
    assert api.requests[0][1]["job"] == "job-1"


@pytest.mark.parametrize("follow", [(), ("--follow",)])
def test_events_of_a_job_that_there_is_not_are_refused(
    hopyard: Hopyard, api: CannedApi, follow: tuple[str, ...]
) -> None:
    api.says_bytes("GET /v1/events", b"")
    api.says("GET /v1/jobs/job-9", problems.unknown("job job-9"), status=404)
    ran = hopyard("events", "job-9", *follow, "--api", api.url)
    assert (ran.code, ran.out, ran.err) == (
        1,
        "",
        "hopyard: there is no job job-9; `hopyard ps` lists the ids of jobs\n",
    )
    assert not any("follow" in query for _, query, _, _ in api.requests)


def test_events_of_a_job_are_followed_where_only_its_facts_are_known(
    hopyard: Hopyard, api: CannedApi
) -> None:
    followed(api, EVENTS, EVENTS)
    assert len(hopyard("events", "job-1", "--follow", "--api", api.url).out.splitlines()) == 2
    asked = [query.get("follow") for name, query, _, _ in api.requests if name == "GET /v1/events"]
    assert asked == [None, "true", "true"]


def test_events_as_json_is_a_document_a_line(hopyard: Hopyard, api: CannedApi) -> None:
    followed(api, EVENTS)
    lines = hopyard("events", "--json", "--follow", "--api", api.url).out.splitlines()
    assert [json.loads(line)["seq"] for line in lines] == [1, 4]
    assert queries(api)[0] == {"after": "0", "follow": "true"}


@pytest.mark.parametrize("first", [EVENTS, EVENTS + b'{"seq":5,"event":{"fa'], ids=["ended", "cut short"])
def test_a_followed_log_goes_on_after_its_last_fact_when_the_api_comes_back(
    hopyard: Hopyard, api: CannedApi, first: bytes
) -> None:
    """A restart of admission ended it, with exit code 0."""
    followed(api, first, EVENTS.replace(b'"seq":1', b'"seq":5').replace(b'"seq":4', b'"seq":6'), b"")
    (well,) = api.answers["GET /v1/policy"]
    away = (503, b'{"title": "no", "status": 503, "detail": "starting"}')
    api.answers["GET /v1/policy"] = [well, away, well]
    ran = hopyard("events", "--json", "--follow", "--since", "2h", "--api", api.url)
    assert [json.loads(line)["seq"] for line in ran.out.splitlines()] == [1, 4, 5, 6]
    assert [query["after"] for query in queries(api)] == ["0", "4", "6", "6"]
    assert ran.err.count("cut off; waiting up to 10 minutes for the API") == 2, "once at a place"
    assert ran.code == 1


def test_a_followed_log_begins_with_the_newest_facts_once(hopyard: Hopyard, api: CannedApi) -> None:
    followed(api, EVENTS, b"")
    ran = hopyard("events", "--json", "--follow", "--tail", "0", "--api", api.url)
    assert ran.out == ""
    assert queries(api)[:2] == [
        {"after": "0", "newest": "1", "limit": "10000"},
        {"after": "4", "follow": "true"},
    ]


def test_an_api_that_stays_away_ends_a_followed_log_with_how_to_go_on(
    hopyard: Hopyard, api: CannedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "LONG_LIMIT_S", 0.0)
    followed(api, EVENTS)
    api.answers["GET /v1/policy"].append((503, b'{"title": "no", "status": 503, "detail": "ending"}'))
    ran = hopyard("events", "--follow", "--api", api.url)
    assert (ran.code, len(ran.out.splitlines())) == (3, 2)
    assert ran.err.endswith("ending; the same command with --after 4 goes on\n")


def test_an_api_that_is_not_there_is_not_waited_for(hopyard: Hopyard) -> None:
    assert hopyard("events", "--follow", "--api", "http://127.0.0.1:9").code == 3


def test_events_can_be_the_newest_or_those_since_a_while_ago(hopyard: Hopyard, api: CannedApi) -> None:
    api.says("GET /v1/status", status_view(at=7205.0))
    api.says_bytes("GET /v1/events", EVENTS)
    assert hopyard("events", "--tail", "5", "--since", "2h", "--api", api.url).code == 0
    assert (api.requests[1][1]["newest"], api.requests[1][1]["since"]) == ("5", "5.0")


def test_an_invalid_time_is_bad_usage(hopyard: Hopyard, api: CannedApi) -> None:
    api.says("GET /v1/status", status_view())
    ran = hopyard("events", "--since", "yesterday", "--api", api.url)
    assert (ran.code, ran.out) == (2, "")
    assert "--since yesterday: how long ago is written 90s, 30m, 2h or 1d" in ran.err


OUTPUT = b"""\
{"node":"a","at":1.5,"rank":0,"text":"[bold]epoch 1[/bold] :tada:"}
{"node":"b","problem":"the agent of b does not answer: no responders"}
"""


def test_logs_prints_the_output_of_a_job_and_names_missing_parts(hopyard: Hopyard, api: CannedApi) -> None:
    api.says_bytes("GET /v1/jobs/job-1/output", OUTPUT)
    ran = hopyard("logs", "job-1", "-f", "--tail", "5", "--rank", "0", "--api", api.url)
    assert ran.out == "a/0  [bold]epoch 1[/bold] :tada:\n"
    assert "b: the agent of b does not answer" in ran.err
    assert api.requests[0][1] == {"newest": "5", "rank": "0", "follow": "true"}
    plain = hopyard("logs", "job-1", "--plain", "--api", api.url)
    assert plain.out == "[bold]epoch 1[/bold] :tada:\n"
    lines = hopyard("logs", "job-1", "--json", "--api", api.url).out.splitlines()
    assert [json.loads(line)["node"] for line in lines] == ["a", "b"]


def test_logs_without_a_job_says_what_to_use(hopyard: Hopyard, api: CannedApi) -> None:
    ran = hopyard("logs", "--api", api.url)
    assert (ran.code, api.requests) == (2, [])
    assert "`hopyard logs JOB`" in ran.err
    assert "`hopyard events`" in ran.err
