"""events and logs."""

import json

import pytest

from schemas.views import Problem
from tests.hopyard.cli_builders import status_view
from tests.hopyard.cli_line import Hopyard
from tests.hopyard.cli_server import CannedApi

EVENTS = b"""\
{"seq":1,"event":{"fact":"job.cancelled","at":3.25,"job_id":"job-1"}}
{"seq":4,"event":{"fact":"job.praised","at":40.0,"job_id":"job-1","by":"everybody","for":{"a":1}}}
"""


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
    api.says(
        "GET /v1/jobs/job-9",
        Problem(title="Not found", status=404, detail="there is no job job-9"),
        status=404,
    )
    ran = hopyard("events", "job-9", *follow, "--api", api.url)
    assert (ran.code, ran.out, ran.err) == (1, "", "hopyard: there is no job job-9\n")
    assert not any("follow" in query for _, query, _, _ in api.requests)


def test_events_of_a_job_are_followed_where_only_its_facts_are_known(
    hopyard: Hopyard, api: CannedApi
) -> None:
    api.says_bytes("GET /v1/events", EVENTS)
    assert len(hopyard("events", "job-1", "--follow", "--api", api.url).out.splitlines()) == 2
    assert [query.get("follow") for _, query, _, _ in api.requests] == [None, "true"]


def test_events_as_json_is_a_document_a_line(hopyard: Hopyard, api: CannedApi) -> None:
    api.says_bytes("GET /v1/events", EVENTS)
    lines = hopyard("events", "--json", "--follow", "--api", api.url).out.splitlines()
    assert [json.loads(line)["seq"] for line in lines] == [1, 4]
    assert api.requests[0][1] == {"after": "0", "follow": "true"}


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
