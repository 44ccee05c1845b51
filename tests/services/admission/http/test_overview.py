"""What a page over the cluster reads: the questions that reach the monitor, and their limits."""

import msgspec
import pytest

from schemas.base import Message, Question
from schemas.ids import JobId, PlanId
from schemas.overview import PlanDetail, PlanPage, RunPage, SummaryPage, TimelineView, Which
from schemas.questions import ListPlans, ListRuns, ListSummaries, ShowPlan, ShowTimeline
from tests.services.admission.admission_world import job_facts, serving

TIMELINE = TimelineView(
    at=1.0,
    revision=7,
    more=False,
    complete_from=None,
    nodes=(),
    holdings=(),
    spells=(),
    planned=(),
    expected={},
)
DETAIL = PlanDetail(plan_id=PlanId("plan-1"), placements=(), left_out=())

CALLS: list[tuple[str, Question, Message]] = [
    ("/v1/timeline", ShowTimeline(), TIMELINE),
    ("/v1/timeline?after=7&limit=5", ShowTimeline(after=7, limit=5), TIMELINE),
    ("/v1/summaries", ListSummaries(), SummaryPage(total=0, jobs=())),
    (
        "/v1/summaries?which=ended&limit=9",
        ListSummaries(which=Which.ENDED, limit=9),
        SummaryPage(total=0, jobs=()),
    ),
    ("/v1/jobs/a-1/runs", ListRuns(job_id=JobId("a-1")), RunPage(job_id=JobId("a-1"), runs=(), total=0)),
    ("/v1/plans?limit=3", ListPlans(limit=3), PlanPage(plans=())),
    ("/v1/plans/plan-1", ShowPlan(plan_id=PlanId("plan-1")), DETAIL),
]


@pytest.mark.parametrize(("path", "question", "view"), CALLS, ids=[path for path, *_ in CALLS])
async def test_the_monitor_is_asked_and_its_answer_shown(
    path: str, question: Question, view: Message
) -> None:
    async with serving() as api:
        api.views[type(question)] = view
        assert msgspec.convert(await api.body("GET", path), type(view)) == view
        assert api.asked == [question]


@pytest.mark.parametrize("path", ["/v1/jobs/nobody-1/runs", "/v1/plans/none"])
async def test_questions_that_the_monitor_refuses_are_not_found(path: str) -> None:
    async with serving() as api:
        body, _ = await api.call("GET", path, 404)
        assert body["detail"] == "not known"


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/v1/timeline?limit=5001", "$.limit"),
        ("/v1/timeline?after=-1", "$.after"),
        ("/v1/timeline?after=999999999999999999999999999999", "$.after"),
        ("/v1/timeline?after=1&after=2", "$.after"),
        ("/v1/summaries?limit=1001", "$.limit"),
        ("/v1/summaries?which=asleep", "$.which"),
        ("/v1/plans?limit=51", "$.limit"),
        ("/v1/jobs/a-1/runs?limit=1", "$.limit"),
    ],
)
async def test_no_answer_is_without_bounds(path: str, field: str) -> None:
    async with serving() as api:
        body, _ = await api.call("GET", path, 422)
        assert body["field"] == field


@pytest.mark.parametrize(("query", "first"), [("newest=2", -2), ("newest=0", None), ("after=3&newest=99", 3)])
async def test_events_can_begin_with_the_newest(query: str, first: int | None) -> None:
    facts = job_facts("train-1")
    async with serving() as api:
        await api.bus.publish(facts)
        async with api.client.get(f"/v1/events?{query}") as response:
            tags = [
                msgspec.json.decode(line)["event"]["fact"] for line in (await response.read()).splitlines()
            ]
        assert tags == ([] if first is None else [fact.tag() for fact in facts[first:]])


async def test_a_follower_from_now_on_gets_only_new_facts() -> None:
    async with serving() as api:
        await api.bus.publish(job_facts("train-1"))
        async with api.client.get("/v1/events?follow=true&newest=0") as response:
            await api.submit("k", name="late")
            line = msgspec.json.decode(await response.content.readline())
            assert line["event"]["job_id"] == "late-1"
