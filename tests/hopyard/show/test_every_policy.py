"""What the monitor answers amid runs of unlike policies can be shown, in words, at any width."""

import io
import re
from collections.abc import Iterator, Sequence

import msgspec
import pytest
from rich.console import Console, RenderableType
from rich.text import Text

from hopyard.show import jobs, nodes
from hopyard.show.columns import Listing
from hopyard.show.events import fact_line
from hopyard.show.jobs import job_columns, job_table
from hopyard.show.nodes import node_columns
from hopyard.show.progress import RunStatus, line, picture
from hopyard.show.runs import runs_listing
from hopyard.show.tables import status_table
from hopyard.show.times import Times, dated
from hopyard.show.why import preemptions_text, why_text
from loadgen.scenarios import load_scenario
from loadgen.simulation import Simulated, simulate
from schemas.base import Message, Question
from schemas.events import PreemptReason
from schemas.ids import JobId
from schemas.overview import PlanDetail, PlanPage, RunPage, SummaryPage, TimelineView, Which
from schemas.questions import (
    ExplainJob,
    ListJobs,
    ListNodes,
    ListPlans,
    ListRuns,
    ListSummaries,
    ShowJob,
    ShowPlan,
    ShowStatus,
    ShowTimeline,
)
from schemas.scenarios import ScenarioFile
from schemas.views import ClockView, JobPage, JobView, NodePage, StatusView, WhyView
from services.monitor.answers import answer
from services.monitor.cluster_now import ClusterNow
from services.monitor.core import Monitor
from tests.simulation.failing_runner import FailureRates, failing
from tests.simulation.storms import SMALL

TINY, LAB = load_scenario("tiny"), load_scenario("hadare-lab")
RUNS = [(TINY, "hops"), (TINY, "hare"), (TINY, "jps"), (TINY, "hlas"), (LAB, "hadare")]
MOMENTS = 2
"""of each run at which everything is shown, besides its end"""
NO_WORD = re.compile(r"\b(None|nan|inf|True|False)\b|[{}]|<\w")
NO_NUMBER = re.compile(rb"\b(NaN|Infinity)\b")


@pytest.mark.parametrize(("scenario", "policy"), RUNS, ids=lambda each: getattr(each, "name", each))
def test_every_answer_about_a_run_can_be_shown(scenario: ScenarioFile, policy: str) -> None:
    shown_whole(simulate(scenario, policy=policy))


def test_every_answer_about_jobs_that_break_can_be_shown() -> None:
    done = simulate(
        SMALL,
        policy="hadare",
        overrides={"interruptions_max": 3},
        runners=failing(FailureRates(seed=5, breaks=0.6, within_s=300.0, fails=0.4)),
    )
    reasons = {getattr(fact, "reason", None) for fact in done.events}
    assert {PreemptReason.INTERRUPTED, PreemptReason.MERGE} <= reasons, "or this says nothing"
    shown_whole(done)


def shown_whole(done: Simulated) -> None:
    monitor = Monitor(lease_s=1e9, interruptions_max=3, raqlr_window_s=86_400.0, speed=60.0)
    every = max(len(done.events) // (MOMENTS + 1), 1)
    for number, (fact, seq) in enumerate(zip(done.events, done.seqs, strict=True), 1):
        assert not NO_WORD.search(fact_line(fact, Times(None)))
        monitor.state.seq = seq
        monitor.handle(fact, fact.at)
        if number % every == 0 or number == len(done.events):
            show_all(monitor.cluster(fact.at))


def show_all(cluster: ClusterNow) -> None:
    by_width = {
        40: Times(ClockView(now=cluster.now, origin=1.7e9, speed=1.0)),
        80: Times(ClockView(now=cluster.now, origin=0.0, speed=60.0)),
        200: Times(None),
    }
    found = list(everything(cluster))
    for width, times in by_width.items():
        for what in found:
            shown = "".join(text_of(picture, width) for picture in pictures(what, times))
            assert not NO_WORD.search(shown), shown
    for what in found:
        sent = msgspec.json.encode(what)
        assert not NO_NUMBER.search(sent)
        assert msgspec.json.decode(sent, type=type(what)) == what
        dated(what, by_width[40])


def everything(cluster: ClusterNow) -> Iterator[Message]:
    questions: list[Question] = [ShowStatus(), ListJobs(), ListNodes(), ShowTimeline(), ListPlans()]
    questions += [ListSummaries(which=which) for which in Which]
    questions += [ShowPlan(plan_id=entry.detail.plan_id) for entry in cluster.history.plans[-1:]]
    for job_id in map(JobId, cluster.ledger.jobs):
        questions += [ShowJob(job_id=job_id), ListRuns(job_id=job_id), ExplainJob(job_id=job_id)]
    return (answer(question, cluster) for question in questions)


def pictures(what: Message, times: Times) -> Sequence[RenderableType]:  # noqa: PLR0911 - a case each
    match what:
        case StatusView():
            at = RunStatus(status=what, submitted=3, total=8, round_s=120.0, elapsed_s=3.0, left_s=9.0)
            return status_table(what, times), picture(at), Text(line(at))
        case JobPage():
            there = job_columns(times)
            return (
                Listing([there[name] for name in jobs.DEFAULT], what.jobs),
                Listing(list(there.values()), what.jobs, whole=True),
            )
        case NodePage():
            columns = node_columns()
            return (Listing([columns[name] for name in nodes.DEFAULT], what.nodes),)
        case JobView():
            return job_table(what, times), Text(preemptions_text(what.preemptions, times.moment))
        case RunPage():
            return (runs_listing(what.runs, times),)
        case WhyView():
            return (Text(why_text(what, times.moment)),)
        case _:
            assert isinstance(what, SummaryPage | TimelineView | PlanPage | PlanDetail), what
            return ()


def text_of(what: RenderableType, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    with console.capture() as captured:
        console.print(what, crop=False)
    return captured.get()
