import pytest
from msgspec.structs import replace
from rich.console import Console, RenderableType

from hopyard.show import nodes as node_lines
from hopyard.show.columns import Listing
from hopyard.show.jobs import DEFAULT, SOURCES, job_columns, job_table, place_parts, places
from hopyard.show.metrics import LABELS, SHARES
from hopyard.show.nodes import node_columns
from hopyard.show.progress import RunStatus, line, picture
from hopyard.show.tables import result_table, scenarios_table, status_table
from hopyard.show.times import Times
from schemas.ids import NodeId
from schemas.placement import Gang, Proportional, Relaxed
from schemas.plans import Layer, Stage
from schemas.scenarios import PoissonWorkload, ScenarioFile, TraceWorkload, WorkloadSource
from schemas.views import ClockView, JobView, NodeView
from shared.domain.ledger import Ledger
from shared.domain.metrics import summary
from tests.hopyard.cli_builders import job_view, node_view, plan_view, run_result, status_view


def text_of(table: RenderableType) -> str:
    console = Console(width=200, no_color=True)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


def at(now: float, *, speed: float = 60.0) -> Times:
    return Times(ClockView(now=now, origin=0.0, speed=speed))


@pytest.mark.parametrize(
    ("workload", "says"),
    [
        (PoissonWorkload(mix="hops", count=1, rate_per_hour=None), "1 job at once"),
        (PoissonWorkload(mix="hops", count=2, rate_per_hour=30.0), "2 jobs, 30 per hour"),
        (
            TraceWorkload(path="/opt/scenarios/../traces/day.csv", format="philly", mix="hops"),
            " trace day.csv ",
        ),
    ],
)
def test_a_scenario_shows_its_arrivals_in_few_words(workload: WorkloadSource, says: str) -> None:
    scenario = ScenarioFile(name="own", cluster="tiny", workload=workload)
    assert says in text_of(scenarios_table([scenario]))


def jobs_table(*jobs: JobView) -> Listing[JobView]:
    columns = job_columns(at(100.0))
    return Listing([columns[name] for name in DEFAULT], jobs)


def nodes_table(*nodes: NodeView) -> Listing[NodeView]:
    columns = node_columns()
    return Listing([columns[name] for name in node_lines.DEFAULT], nodes)


def status() -> RunStatus:
    return RunStatus(status=status_view(), submitted=7, total=25, round_s=360.0, elapsed_s=2.5)


def test_a_running_job_shows_where_it_runs_and_how_far_it_is() -> None:
    job = job_view(state="running", gang=Gang.of({NodeId("titan-0"): 4}), samples_done=250.0)
    shown = text_of(jobs_table(job))
    assert "titan-0:4" in shown
    assert "25.0%" in shown


def test_a_mode_is_shown_where_it_is_not_lockstep() -> None:
    relaxed = Gang.of({NodeId("titan-0"): 2}, Relaxed(tasks=((3, 1),)))
    shown = text_of(jobs_table(job_view(state="running", gang=relaxed)))
    assert "titan-0:2 (relaxed)" in shown
    assert "lockstep" not in text_of(jobs_table(job_view(gang=Gang.of({NodeId("a"): 1}))))


def test_a_gang_of_unlike_shares_shows_them_where_there_is_room() -> None:
    unlike = Gang.of({NodeId("t4-0"): 2, NodeId("v100-0"): 1}, Proportional(samples=(177, 207)))
    assert places(unlike) == "t4-0:2 v100-0:1 (proportional, 177:207 samples)"
    assert place_parts(unlike) == ("t4-0:2", "v100-0:1 (proportional)")
    assert places(Gang.of({NodeId("t4-0"): 2})) == "t4-0:2"


def test_a_waiting_job_shows_its_demand() -> None:
    assert "(1/2/4)" in text_of(jobs_table(job_view()))
    assert "1/2/4" not in text_of(jobs_table(job_view(state="cancelled", ended_at=50.0)))


def test_a_waiting_job_shows_how_long_it_waits_in_all_roughly() -> None:
    waits = job_view(wait_s=60.0, expected_wait_s=720.0)
    assert "60s of ~12m" in text_of(jobs_table(waits))
    assert "1m 00s of ~12m 00s" in text_of(job_table(waits, at(100.0)))
    assert "~" not in text_of(job_table(job_view(wait_s=60.0), at(100.0)))
    late = job_view(wait_s=720.0, expected_wait_s=60.0)
    assert "12m" in text_of(jobs_table(late))
    assert "~" not in text_of(jobs_table(late))
    assert "12m 00s, longer than the ~1m 00s expected" in text_of(job_table(late, at(100.0)))


@pytest.mark.parametrize("layer", Layer)
def test_an_estimate_says_where_it_comes_from(layer: Layer) -> None:
    shown = text_of(job_table(job_view(estimated_throughput=10.0, layer=layer), at(100.0)))
    assert f"10 samples/s estimated, {SOURCES[layer]}" in shown


def test_the_status_shows_how_long_jobs_wait_and_the_metrics() -> None:
    shown = text_of(
        status_table(status_view(raqlr=0.25, metrics={"makespan_s": 3600.0, "gru": None}), at(725.0))
    )
    assert "~0.25 of the time a job runs" in shown
    assert "makespan" in shown
    assert "gru" not in shown


def test_every_metric_has_a_name_in_words_and_a_share_is_in_per_cent() -> None:
    assert list(LABELS) == list(summary(Ledger()))
    assert len(set(LABELS.values())) == len(LABELS)
    assert set(LABELS) > SHARES
    shown = text_of(status_table(status_view(metrics={"gru": 0.66, "lr_max": 1.23}), at(725.0)))
    assert "GPUs busy              66.0%" in shown
    assert "largest latency ratio  1.23" in shown
    assert "of_tomorrow" not in text_of(status_table(status_view(metrics={"of_tomorrow_s": 1.0}), at(725.0)))


def test_the_status_shows_the_speed_of_an_accelerated_clock() -> None:
    assert "60 times the speed of time" in text_of(status_table(status_view(speed=60.0), at(725.0)))
    assert "clock" not in text_of(status_table(status_view(speed=1.0), at(725.0)))


def test_a_job_shows_the_layer_of_its_estimate() -> None:
    shown = text_of(job_table(job_view(estimated_throughput=812.0, layer=Layer.ENTITY), at(100.0)))
    assert "812 samples/s estimated, from the entity layer" in shown


def test_plans_say_in_words_how_they_were_found() -> None:
    plan = replace(plan_view(), stage=Stage.QUEUE, gap=0.0)
    assert "left out; in the order of its queue, in " in text_of(
        status_table(status_view(plan=plan), at(1.0))
    )
    solved = text_of(status_table(status_view(plan=plan_view()), at(1.0)))
    assert "left out; solved, gap " in solved
    assert "optimal" not in solved + text_of(result_table(run_result()))
    failed = replace(plan, notes=("mine failed: what\n\x1b[31mwhere",))
    assert "mine failed: what … [31mwhere" in text_of(status_table(status_view(plan=failed), at(1.0)))


def test_unknown_fields_of_a_job_are_left_out() -> None:
    assert "ended" not in text_of(job_table(job_view(), at(100.0)))


def test_a_node_shows_its_busy_gpus_and_their_holders() -> None:
    shown = text_of(nodes_table(node_view()))
    assert "job-1:2" in shown
    assert "titan-0" in shown


def test_a_node_says_why_some_of_its_gpus_get_no_job() -> None:
    kept = {0: "in use by process 7\x1b[2J", 1: "lost", 2: "lost"}
    shown = text_of(nodes_table(replace(node_view(), withheld=kept, reason="GPU 1,2: lost")))
    assert "GPU 1,2: lost; GPU 0 withheld: in use by process 7" in shown
    assert "\x1b" not in shown
    assert "note" not in text_of(nodes_table(node_view()))


def test_a_job_on_withheld_gpus_keeps_them_busy() -> None:
    kept = dict.fromkeys(range(8), "Xid 79")
    held = replace(node_view(), withheld=kept, gpus_free=0)
    assert "2/8" in text_of(nodes_table(held))
    assert "0/8" in text_of(nodes_table(replace(held, jobs={})))


def test_nobody_knows_what_runs_on_a_lost_node() -> None:
    shown = text_of(nodes_table(replace(node_view(), state="lost", gpus_free=0, jobs={})))
    assert "?/8" in shown
    assert "8/8" not in shown


def test_a_leaving_node_shows_its_end() -> None:
    assert "goes away in 2h" in text_of(nodes_table(replace(node_view(), left_s=7_200.0)))
    gone = replace(node_view(), left_s=0.0, state="lost", reason="its time is over")
    assert "its time is over" in text_of(nodes_table(gone))
    assert "goes away" not in text_of(nodes_table(gone))


def test_markup_in_a_users_text_is_text() -> None:
    assert "[bold]oops[/bold]" in text_of(jobs_table(job_view(reason="[bold]oops[/bold]")))


def test_a_result_shows_durations_and_leaves_out_unknown_figures() -> None:
    shown = text_of(result_table(run_result()))
    assert "9h 30m" in shown
    assert "largest latency ratio" in shown
    assert "ftf" not in shown


def test_the_plain_line_says_clock_jobs_gpus_and_the_last_plan() -> None:
    shown = line(status())
    assert "12m 05s simulated, round 2" in shown
    assert "7/25 submitted" in shown
    assert "titan 12/16" in shown
    assert "gap 1.0%" in shown


def test_before_the_first_job_the_line_has_no_states() -> None:
    quiet = RunStatus(status=status_view(jobs={}), submitted=0, total=25, round_s=360.0, elapsed_s=0.0)
    assert "| jobs 0/25 submitted | GPUs" in line(quiet)


def test_the_picture_shows_busy_gpus_by_type() -> None:
    assert "12/16" in text_of(picture(status()))


def test_before_the_first_plan_the_line_is_without_one() -> None:
    quiet = RunStatus(status=status_view(plan=None), submitted=0, total=1, round_s=360.0, elapsed_s=0.0)
    assert "gap" not in line(quiet)
    assert "gap" in line(
        RunStatus(status=status_view(plan=plan_view()), submitted=0, total=1, round_s=360.0, elapsed_s=0.0)
    )


def test_a_glance_says_how_long_the_rest_takes_once_one_can_say() -> None:
    assert "elapsed, about 40s left | " in line(replace(status(), left_s=40.0))
    assert "left |" not in line(status())
