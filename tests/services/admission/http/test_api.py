"""The HTTP API in front of a real core."""

import asyncio
import contextlib
from typing import Any

import msgspec
import pytest
from multidict import CIMultiDict

from schemas.base import Message, Question
from schemas.cluster import Node
from schemas.events import JobProfiled, JobSubmitted, NodeLost, PolicyChosen
from schemas.ids import JobId, NodeId
from schemas.questions import (
    ADMISSION,
    JOBS_PER_PAGE,
    PLANNER,
    ExplainJob,
    JudgePolicy,
    ListJobs,
    ListNodes,
    ListRuns,
    PolicyVerdict,
    Refused,
    ShowJob,
    ShowStatus,
)
from schemas.settings import Settings
from schemas.views import (
    ClockView,
    JobPage,
    JobSorting,
    JobView,
    NodePage,
    NodeView,
    Problem,
    StatusView,
    WhyView,
)
from services.admission.http.operations import OPERATIONS
from shared.domain.states import JobState
from shared.runtime.process.reports import reported
from tests.services.admission.admission_world import Served, job_body, joined, node, serving, spec

VIEW = JobView(job_id=JobId("train-1"), state="running", spec=spec(), submitted_at=1.0)
STATUS = StatusView(
    at=1.0, speed=1.0, jobs={"queued": 2}, gpus={}, nodes={}, policy="hops", plan=None, raqlr=None, metrics={}
)
YAML = b"""
name: from-yaml
workload: {model: bert, dataset: imdb, batch_size: 8}
gpus: {min: 1, max: 4}
samples: 5000
learning_rates: {1: 0.1, 2: 0.2, 3: 0.3, 4: 0.4}
"""


async def refused(api: Served, method: str, path: str, status: int, json: object = None) -> Problem:
    body, headers = await api.call(method, path, status, json=json)
    assert headers["Content-Type"].startswith("application/problem+json")
    problem = msgspec.convert(body, Problem)
    assert problem.status == status
    return problem


async def test_a_job_in_json_is_created() -> None:
    async with serving() as api:
        body, headers = await api.call("POST", "/v1/jobs", 201, json=job_body())
        assert body == {"job_id": "train-1", "created": True}
        assert headers["Location"] == "/v1/jobs/train-1"
        assert len(headers["Idempotency-Key"]) == 32


async def test_a_job_in_yaml_is_created() -> None:
    async with serving() as api:
        how = {"Content-Type": "application/yaml"}
        body, _ = await api.call("POST", "/v1/jobs", 201, data=YAML, headers=how)
        assert body["job_id"] == "from-yaml-1"


async def test_the_same_key_creates_one_job() -> None:
    async with serving() as api:
        assert await api.submit("k") == {"status": 201, "job_id": "train-1", "created": True}
        assert await api.submit("k") == {"status": 200, "job_id": "train-1", "created": False}


async def test_without_a_key_every_submission_is_new() -> None:
    async with serving() as api:
        for number in (1, 2):
            body = await api.body("POST", "/v1/jobs", 201, job_body())
            assert body["job_id"] == f"train-{number}"


@pytest.mark.parametrize("key", ["k" * 201, "", "ü", "a\tb"])
async def test_a_key_that_the_document_forbids_is_refused(key: str) -> None:
    async with serving() as api:
        answer = await api.submit(key)
        assert (answer["status"], answer["field"]) == (400, "Idempotency-Key")


async def test_two_keys_are_refused_since_one_alone_would_count() -> None:
    async with serving() as api:
        headers = CIMultiDict([("Idempotency-Key", "one"), ("Idempotency-Key", "two")])
        body, _ = await api.call("POST", "/v1/jobs", 400, json=job_body(), headers=headers)
        assert (body["field"], body["detail"]) == ("Idempotency-Key", "is given more than once")
        assert await api.bus.last_seq() == 0


@pytest.mark.parametrize(
    ("job", "field"),
    [
        ({"gpus": [1, -2]}, "$.gpus[1]"),
        ({"gpus": 0}, "$.gpus"),
        ({"samples": -1.0}, "$.samples"),
        ({"name": "No Capitals"}, "$.name"),
        ({"colour": "red"}, "$.colour"),
        ({"workload": {"model": "m", "dataset": "d"}}, "$.workload.batch_size"),
        ({"workload": {"model": "m", "dataset": "d", "batch_size": 1, "batch": 1}}, "$.workload.batch"),
        ({"learning_rate": {"value": -0.1}}, "$.learning_rate.value"),
        ({"priority": "high"}, "$.priority"),
        ({"learning_rates": {"one": 0.1}}, "$.learning_rates"),
        ({"learning_rates": {"1": -0.1}}, "$.learning_rates[...]"),
        ({"gpus": 5_000}, "$.gpus"),
        ({"user": "ada\n"}, "$.user"),
        ({"user": "a\tb"}, "$.user"),
        ({"user": "a\x7fb"}, "$.user"),
    ],
)
async def test_a_job_with_a_wrong_field_is_refused_and_not_stored(job: dict[str, Any], field: str) -> None:
    async with serving() as api:
        problem = await refused(api, "POST", "/v1/jobs", 422, job_body(**job))
        assert problem.field == field
        assert await api.bus.last_seq() == 0


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity", b"1e999"])
async def test_a_number_that_is_not_finite_is_refused_by_field(number: bytes) -> None:
    async with serving() as api:
        data = msgspec.json.encode(job_body(samples=777.0)).replace(b"777.0", number)
        how = {"Content-Type": "application/json"}
        body, _ = await api.call("POST", "/v1/jobs", 422, data=data, headers=how)
        assert body["field"] == "$.samples"


@pytest.mark.parametrize("number", [b".nan", b".inf", b"-5"])
async def test_a_number_in_yaml_that_is_negative_or_not_finite_is_refused_by_field(number: bytes) -> None:
    async with serving() as api:
        how = {"Content-Type": "application/yaml"}
        data = YAML.replace(b"5000", number)
        body, _ = await api.call("POST", "/v1/jobs", 422, data=data, headers=how)
        assert body["field"] == "$.samples"


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("application/json", b"{"),
        ("application/json", b""),
        ("application/json", b'{"name": "\xff"}'),
        ("application/yaml", b"a: ["),
        ("application/yaml", b"\xff\xff"),
        ("application/yaml", b"? {a: b}\n: c"),
        ("application/yaml", b"[" * 60_000),
        ("application/yaml", b"&a [*a]"),
        ("application/yaml", b""),
    ],
)
async def test_a_malformed_body_is_refused(kind: str, data: bytes) -> None:
    async with serving(web_max_body_bytes=100_000) as api:
        body, _ = await api.call("POST", "/v1/jobs", 400, data=data, headers={"Content-Type": kind})
        assert body["title"] == "Malformed"


@pytest.mark.parametrize("key", ["samples", "name", "model"])
@pytest.mark.parametrize("kind", ["application/json", "application/yaml"])
async def test_a_key_given_twice_is_refused(key: str, kind: str) -> None:
    """In JSON the last one counted."""
    again = {"samples": b'"samples":5', "name": b'"\\u006eame":"other"', "model": b'"model":"other"'}[key]
    place = b'"workload":{' if key == "model" else b"{"
    data = msgspec.json.encode(job_body()).replace(place, place + again + b",", 1)
    async with serving() as api:
        body, _ = await api.call("POST", "/v1/jobs", 400, data=data, headers={"Content-Type": kind})
        assert f"the key {key} is given twice" in body["detail"]
        assert api.driver.published == []


@pytest.mark.parametrize("attached", [True, False])
@pytest.mark.parametrize("half", [rb"\ud800", rb"\uDC80 and more", rb"\ud800\u0041"])
async def test_half_of_a_surrogate_pair_is_refused_by_name(half: bytes, *, attached: bool) -> None:
    """It came as far as the core, where no message can hold it."""
    data = msgspec.json.encode(job_body(command=["word"])).replace(b"word", half)
    async with serving(attached=attached) as api:
        how = {"Content-Type": "application/json"}
        body, _ = await api.call("POST", "/v1/jobs", 400, data=data, headers=how)
        assert body["detail"] == f"{half[:6].decode().lower()} is half of a surrogate pair, which is no text"


async def test_a_whole_surrogate_pair_is_text() -> None:
    data = msgspec.json.encode(job_body(command=["word"])).replace(b"word", rb"\ud83d\ude00")
    async with serving() as api:
        await api.call("POST", "/v1/jobs", 201, data=data, headers={"Content-Type": "application/json"})


async def test_a_body_that_is_not_encoded_as_its_head_says_is_refused() -> None:
    async with serving() as api:
        how = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        body, _ = await api.call("POST", "/v1/jobs", 400, data=b"{}", headers=how)
        assert "Content-Encoding" in body["detail"]


async def test_a_body_of_another_kind_is_refused() -> None:
    async with serving() as api:
        how = {"Content-Type": "text/csv"}
        await api.call("POST", "/v1/jobs", 415, data=b"a,b", headers=how)


async def test_a_body_above_the_limit_is_refused() -> None:
    async with serving() as api:
        await refused(api, "POST", "/v1/jobs", 413, job_body(command=["x" * 20_000]))


async def test_yaml_above_its_own_limit_is_refused() -> None:
    async with serving(web_max_body_bytes=1_000_000) as api:
        how = {"Content-Type": "application/yaml"}
        await api.call("POST", "/v1/jobs", 413, data=YAML + b"#" * 70_000, headers=how)


async def test_too_many_open_jobs_say_when_to_come_back() -> None:
    async with serving(jobs_open_max=1) as api:
        await api.submit("a")
        _, headers = await api.call("POST", "/v1/jobs", 429, json=job_body())
        assert headers["Retry-After"] == "2"


async def test_a_job_the_monitor_does_not_know_yet_is_shown_as_submitted() -> None:
    async with serving() as api:
        await api.submit("k")
        shown = await api.body("GET", "/v1/jobs/train-1")
        assert (shown["state"], shown["spec"]["demand"]) == ("submitted", [1, 2, 4])
        why = await api.body("GET", "/v1/jobs/train-1/why")
        assert (why["state"], why["reason"]) == ("submitted", "profiling")


async def test_a_job_is_shown_as_the_monitor_sees_it() -> None:
    async with serving() as api:
        api.views[ShowJob] = VIEW
        assert (await api.body("GET", "/v1/jobs/train-1"))["state"] == "running"
        assert api.asked == [ShowJob(job_id=JobId("train-1"))]


async def test_the_monitor_explains_why_a_job_waits() -> None:
    async with serving() as api:
        api.views[ExplainJob] = WhyView(job_id=JobId("a-1"), state="queued", reason="outweighed", detail="")
        assert (await api.body("GET", "/v1/jobs/a-1/why"))["reason"] == "outweighed"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/jobs/nobody-1"),
        ("GET", "/v1/jobs/nobody-1/why"),
        ("DELETE", "/v1/jobs/nobody-1"),
        ("POST", "/v1/jobs/nobody-1/hold"),
        ("DELETE", "/v1/jobs/nobody-1/hold"),
        ("POST", "/v1/nodes/nowhere/drain"),
        ("DELETE", "/v1/nodes/nowhere/drain"),
        ("DELETE", "/v1/nodes/nowhere"),
    ],
)
async def test_unknown_jobs_and_nodes_are_not_found(method: str, path: str) -> None:
    async with serving() as api:
        await refused(api, method, path, 404)


@pytest.mark.parametrize(
    ("method", "path", "what"),
    [
        ("GET", "/v1/jobs/a.b", "job"),
        ("GET", "/v1/jobs/a.b/why", "job"),
        ("GET", "/v1/jobs/a.b/runs", "job"),
        ("GET", "/v1/jobs/a.b/output", "job"),
        ("DELETE", "/v1/jobs/a.b", "job"),
        ("GET", "/v1/plans/a.b", "plan"),
        ("POST", "/v1/nodes/a.b/drain", "node"),
        ("DELETE", "/v1/nodes/a.b", "node"),
    ],
)
async def test_what_cannot_be_an_id_is_not_found(method: str, path: str, what: str) -> None:
    async with serving() as api:
        assert (await api.call(method, path, 404))[0]["detail"] == f"there is no {what} a.b"
        assert api.asked == []


async def test_a_job_is_cancelled_once() -> None:
    async with serving() as api:
        await api.submit("k")
        assert await api.body("DELETE", "/v1/jobs/train-1", 202) == {"job_id": "train-1"}
        await refused(api, "DELETE", "/v1/jobs/train-1", 409)


async def test_the_priority_of_a_job_is_what_a_job_file_may_say() -> None:
    async with serving() as api:
        await api.submit("k")
        path = "/v1/jobs/train-1/priority"
        assert await api.body("PUT", path, 202, {"priority": 1000}) == {"job_id": "train-1", "priority": 1000}
        for wrong in (
            {"priority": 0},
            {"priority": 1001},
            {"priority": None},
            {},
            {"priority": 1, "by": "me"},
        ):
            assert (await refused(api, "PUT", path, 422, wrong)).title == "Invalid"
        await refused(api, "PUT", "/v1/jobs/nobody-1/priority", 404, {"priority": 2})
        assert len(api.driver.published) == 2


async def test_a_job_is_held_and_released() -> None:
    async with serving() as api:
        await api.submit("k")
        path = "/v1/jobs/train-1/hold"
        assert await api.body("POST", path, 202) == {"job_id": "train-1", "held": True}
        assert await api.body("DELETE", path, 202) == {"job_id": "train-1", "held": False}
        await api.body("DELETE", "/v1/jobs/train-1", 202)
        await refused(api, "POST", path, 409)


async def test_a_job_is_submitted_on_hold() -> None:
    async with serving() as api:
        done, _ = await api.call("POST", "/v1/jobs?hold=true", 201, json=job_body())
        await api.call("POST", "/v1/jobs?hold=false", 201, json=job_body())
        facts = [fact for fact in api.driver.published if isinstance(fact, JobSubmitted)]
        assert [fact.on_hold for fact in facts] == [True, False]
        why = await api.body("GET", f"/v1/jobs/{done['job_id']}/why")
        assert (why["reason"], why["since"], why["hold"]["at"]) == ("on-hold", facts[0].at, facts[0].at)
        found = await refused(api, "POST", "/v1/jobs?hold=perhaps", 422, job_body())
        assert found.field == "$.hold"


async def test_page_tokens_of_job_lists_are_opaque() -> None:
    async with serving() as api:
        api.views[ListJobs] = JobPage(jobs=(VIEW,), next="train-1")
        page = await api.body("GET", "/v1/jobs?state=running,queued&project=lab&user=ada&sort=active&limit=1")
        assert "train" not in page["next"]
        await api.body("GET", f"/v1/jobs?after={page['next']}")
        assert api.asked == [
            ListJobs(
                states=(JobState.RUNNING.value, JobState.QUEUED.value),
                project="lab",
                user="ada",
                sort=JobSorting.ACTIVE,
                limit=1,
            ),
            ListJobs(after="train-1"),
        ]


async def test_an_answer_carries_the_clusters_clock() -> None:
    async with serving(clock_origin=1000.0) as api:
        api.views[ListJobs] = JobPage(jobs=())
        _, headers = await api.call("GET", "/v1/jobs", 200)
        clock = msgspec.json.decode(headers["Hopyard-Clock"], type=ClockView)
        assert (clock.origin, clock.speed) == (1000.0, 1.0)
        assert clock.now > 0


@pytest.mark.parametrize(
    ("path", "status"), [("/v1/nodes?x=1", 422), ("/v1/jobs/none-1", 404), ("/openapi.json", 200)]
)
async def test_a_refusal_and_the_document_carry_the_clusters_clock(path: str, status: int) -> None:
    async with serving() as api:
        _, headers = await api.call("GET", path, status)
        assert msgspec.json.decode(headers["Hopyard-Clock"], type=ClockView).speed == 1.0


async def test_the_stream_of_facts_carries_the_clusters_clock() -> None:
    async with serving() as api, api.client.get("/v1/events") as response:
        assert msgspec.json.decode(response.headers["Hopyard-Clock"], type=ClockView).speed == 1.0


async def test_the_user_is_part_of_the_job_and_no_part_of_its_key() -> None:
    async with serving() as api:
        assert (await api.submit("k", user="ada"))["created"]
        assert not (await api.submit("k", user="ada"))["created"]
        assert (await api.submit("k", user="bob"))["status"] == 422
        assert (await api.body("GET", "/v1/jobs/train-1"))["spec"]["user"] == "ada"


@pytest.mark.parametrize(
    ("query", "status", "field"),
    [
        ("state=asleep", 422, "$.state[0]"),
        ("state=running,asleep", 422, "$.state[1]"),
        ("limit=0", 422, "$.limit"),
        (f"limit={JOBS_PER_PAGE + 1}", 422, "$.limit"),
        ("limit=many", 422, "$.limit"),
        ("project=UP", 422, "$.project"),
        ("sort=age", 422, "$.sort"),
        ("after=!!", 422, "$.after"),
        ("after=b3RoZXI=", 422, "$.after"),  # which the monitor refuses
        ("state=queued&state=running", 422, "$.state"),
        ("limit=1&limit=1", 422, "$.limit"),
    ],
)
async def test_a_wrong_query_is_named(query: str, status: int, field: str) -> None:
    async with serving() as api:
        assert (await refused(api, "GET", f"/v1/jobs?{query}", status)).field == field


@pytest.mark.parametrize(
    ("method", "path"), [*((each.method, each.path) for each in OPERATIONS), ("GET", "/openapi.json")]
)
async def test_no_call_takes_an_unknown_parameter(method: str, path: str) -> None:
    async with serving() as api:
        problem = await refused(api, method, f"{path.format(id='train-1')}?dry_run=true", 422)
        assert problem.field == "$.dry_run"
        assert api.driver.published == []


async def test_status_and_nodes_are_the_monitors() -> None:
    async with serving() as api:
        view = NodeView(node=node(), state="alive", gpus_free=8, jobs={}, heartbeat_age_s=0.5)
        api.views |= {ShowStatus: STATUS, ListNodes: NodePage(nodes=(view,))}
        assert (await api.body("GET", "/v1/status"))["jobs"] == {"queued": 2}
        (shown,) = (await api.body("GET", "/v1/nodes"))["nodes"]
        assert msgspec.convert(shown["node"], Node) == node()


async def test_status_shows_how_the_services_are() -> None:
    async with serving() as api:
        api.views |= {ShowStatus: STATUS}
        with contextlib.suppress(RuntimeError):
            async with reported(api.bus, "planner"):
                raise RuntimeError("out of ideas")
        (planner,) = (await api.body("GET", "/v1/status"))["services"]
        assert (planner["name"], planner["state"], planner["last_error"]) == (
            "planner", "failed", "RuntimeError: out of ideas",
        )  # fmt: skip


async def test_what_the_monitor_refuses_is_a_conflict() -> None:
    async with serving() as api:
        assert (await refused(api, "GET", "/v1/status", 409)).detail == "not known"


async def test_without_a_monitor_reading_says_when_to_come_back() -> None:
    async with serving(monitored=False) as api:
        _, headers = await api.call("GET", "/v1/status", 503)
        assert headers["Retry-After"] == "2"


async def test_a_job_that_went_on_without_a_monitor_knowing_is_not_called_unknown() -> None:
    async with serving() as api:
        await api.submit("k")
        api.driver.fold(
            JobProfiled(at=2.0, job_id=JobId("train-1"), workload=VIEW.spec.workload, modules={}, known=True)
        )
        await refused(api, "GET", "/v1/jobs/train-1", 503)


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("jobs/train-1", ShowJob),
        ("jobs/train-1/why", ExplainJob),
        ("jobs/train-1/runs", ListRuns),
        ("nodes", ListNodes),
    ],
)
async def test_a_monitor_that_fails_at_a_question_is_no_refusal(path: str, asked: type[Question]) -> None:
    async with serving() as api:
        api.views[asked] = Refused(reason="KeyError: 'j-1'", failed=True)
        problem = await refused(api, "GET", f"/v1/{path}", 500)
        assert problem.detail == "the monitor failed at this: KeyError: 'j-1'; its log says how"


@pytest.mark.parametrize("part", ["", "/why", "/output"])
async def test_of_a_job_that_the_monitor_has_forgotten_the_end_is_named(part: str) -> None:
    async with serving() as api:
        await api.submit("k")
        await api.body("DELETE", "/v1/jobs/train-1", 202)
        api.views |= dict.fromkeys((ShowJob, ExplainJob), Refused(reason="not known", seq=2))
        problem = await refused(api, "GET", f"/v1/jobs/train-1{part}", 410)
        assert problem.detail == (
            "job train-1 has ended (cancelled), so many jobs ago that the monitor no longer keeps it; "
            "see `hopyard events train-1`"
        )
        assert problem.state == "cancelled"


async def test_a_fault_of_the_core_that_leads_elsewhere_is_answered_at_once() -> None:
    async def fail(question: Question) -> Message:
        raise ArithmeticError(question)

    async with serving(attached=False) as api, asyncio.timeout(60.0):
        await api.bus.serve("admission", ADMISSION, fail)
        assert (await refused(api, "POST", "/v1/jobs", 500, job_body())).title == "Failed"


async def test_a_node_is_drained_and_restored() -> None:
    async with serving() as api:
        api.driver.fold(joined("n-0"))
        path = "/v1/nodes/n-0/drain"
        assert await api.body("POST", path, 202) == {"node_id": "n-0", "draining": True}
        assert await api.body("DELETE", path, 202) == {"node_id": "n-0", "draining": False}


async def test_only_a_lost_node_is_removed() -> None:
    async with serving() as api:
        api.driver.fold(joined("n-0"))
        await refused(api, "DELETE", "/v1/nodes/n-0", 409)
        api.driver.fold(NodeLost(at=2.0, node_id=NodeId("n-0")))
        assert await api.body("DELETE", "/v1/nodes/n-0", 202) == {"node_id": "n-0"}


async def test_the_policy_is_shown_and_chosen() -> None:
    async with serving() as api:
        assert await api.body("GET", "/v1/policy") == {"policy": "hops"}
        await api.body("PUT", "/v1/policy", 200, {"policy": "fifo"})
        assert await api.body("GET", "/v1/policy") == {"policy": "fifo"}
        assert (await refused(api, "PUT", "/v1/policy", 422, {"policy": "sia"})).field == "$.policy"


async def test_options_of_a_policy_are_judged_by_the_planner() -> None:
    async with serving(policies_allowed="*") as api:
        judged: list[str] = []

        async def planner(question: Question) -> Message:
            assert isinstance(question, JudgePolicy)
            judged.append(question.policy)
            return PolicyVerdict(unfit="" if question.policy == "hops+gap=1" else "it has no such option")

        await api.bus.serve("planner", PLANNER, planner)
        for policy in ("hops+gap=1", "hops+nonsense=1", "json:loads", "nobody+x=1"):
            how = (200,) if policy == "hops+gap=1" else (422,)
            await api.body("PUT", "/v1/policy", *how, {"policy": policy})
        await api.body("PUT", "/v1/policy", 200, {"policy": "fifo"})
        assert judged == ["hops+gap=1", "hops+nonsense=1", "json:loads", "nobody+x=1"]
        problem = await refused(api, "PUT", "/v1/policy", 422, {"policy": "hops+nonsense=1"})
        assert (problem.field, problem.detail) == ("$.policy", "it has no such option")
        assert [fact.policy for fact in api.driver.published if isinstance(fact, PolicyChosen)] == [
            "hops+gap=1",
            "fifo",
        ]


async def test_a_policy_that_hangs_is_refused_by_the_planners_verdict_and_holds_up_nothing_else() -> None:
    async with serving(policies_allowed="*", policy_load_real_s=1.0, ask_timeout_real_s=0.2) as api:
        asked = asyncio.Event()

        async def planner(_: Question) -> Message:
            asked.set()
            await asyncio.sleep(1.0)
            return PolicyVerdict(unfit="own:Hangs was stopped: no answer within 1 s")

        await api.bus.serve("planner", PLANNER, planner)
        choosing = asyncio.create_task(refused(api, "PUT", "/v1/policy", 422, {"policy": "own:Hangs"}))
        await asked.wait()
        await api.body("GET", "/v1/policy")
        await api.body("PUT", "/v1/policy", 200, {"policy": "fifo"})
        assert not choosing.done()
        assert (await choosing).detail == "own:Hangs was stopped: no answer within 1 s"


@pytest.mark.parametrize("policy", ["hops+", "hops+=1", "hops nonsense", "+", "", "h" * 500, "hops+a=1+a=2"])
async def test_a_malformed_policy_name_is_refused_without_asking_the_planner(policy: str) -> None:
    async with serving() as api:
        assert (await refused(api, "PUT", "/v1/policy", 422, {"policy": policy})).field == "$.policy"


async def test_without_a_planner_a_plain_name_is_taken_and_no_other() -> None:
    async with serving() as api:
        await api.body("PUT", "/v1/policy", 200, {"policy": "fifo"})
        await refused(api, "PUT", "/v1/policy", 503, {"policy": "hops+gap=1"})


async def test_the_settings_in_force_are_shown_without_secrets() -> None:
    async with serving(round_s=90.0, nats_token="secret") as api:
        body = await api.body("GET", "/v1/settings")
    shown = {each["name"]: each for each in body["settings"]}
    assert (shown["round_s"]["value"], shown["round_s"]["default"]) == (90.0, 360.0)
    assert shown["nats_token"]["value"] == "***"
    assert set(shown) == set(Settings.__struct_fields__)


async def test_before_the_core_is_there_the_api_says_so() -> None:
    async with serving(attached=False) as api:
        problem = await refused(api, "POST", "/v1/jobs", 503, job_body())
        assert problem.detail.startswith("no admission leads yet; the job may still be stored")


@pytest.mark.parametrize("shown", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer \xe9"}])
async def test_calls_without_the_token_are_refused(shown: dict[str, str]) -> None:
    async with serving(api_token="secret") as api:
        _, headers = await api.call("GET", "/v1/policy", 401, headers=shown)
        assert headers["WWW-Authenticate"] == "Bearer"


async def test_with_the_token_the_api_answers() -> None:
    async with serving(api_token="secret") as api:
        await api.call("GET", "/v1/policy", headers={"Authorization": "Bearer secret"})
