import io
import math
import re
import resource
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import duckdb
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from msgspec.structs import replace
from PIL import Image

from hopyard.failures import Failure
from hopyard.lab.experiments import comparison
from hopyard.lab.experiments.paper import TABLE_3
from hopyard.lab.experiments.suite import EXPERIMENTS
from hopyard.lab.report import pictures
from hopyard.lab.report.causes import causes
from hopyard.lab.report.document import Folded, Picture, Report, Table, Written, page, write
from hopyard.lab.report.drawing import (
    COLOURS,
    DASHES,
    LISTED,
    OTHERS,
    apart,
    colour,
    laid_out,
    line,
    logarithmic,
)
from hopyard.lab.report.gantt import Box, boxes, gantt_svg
from hopyard.lab.report.measures import figure
from hopyard.lab.report.parquet import KINDS
from hopyard.lab.report.parquet import write as write_parquet
from hopyard.lab.report.statistics import summary
from hopyard.lab.runs.cases import Finished
from hopyard.lab.runs.trials import GpuTime, Hold, Simulated
from tests.hopyard.lab.experiment_builders import finished, options, plan

WHOLE = {"columns": 1, "rows": 1}
PARTS = ("useful, on the best type", "slower types", "gangs", "restarts", "idle beside waiting jobs")
ARMS = {"hops": [1.0, 2.0, 4.0], "fifo": [2.0, 3.0, 9.0]}
NAMES = list(ARMS)
CURVES = {arm: [[(float(hour), value) for hour, value in enumerate(values)]] for arm, values in ARMS.items()}


@pytest.mark.parametrize(
    "draw",
    [
        lambda: pictures.distributions({"JCT": ARMS, "LR": ARMS}, NAMES, of="jobs", log=("LR",)),
        lambda: pictures.over_time(CURVES, NAMES, "GPUs"),
        lambda: pictures.sweep(
            {"JCT": {arm: {30.0: summary(each), 60.0: summary(each)} for arm, each in ARMS.items()}},
            NAMES,
            "rate",
        ),
        lambda: pictures.gantt({"hops": finished().outcome, "fifo": finished().outcome}),
        lambda: pictures.points(
            {"": {arm: [(1.0, value) for value in each] for arm, each in ARMS.items()}},
            NAMES,
            ("x", "y"),
            log="y",
        ),
        lambda: pictures.bars({"vgg": {"a": {"1×1": {"predicted": 1.0, "measured": 2.0}}}}, "samples/s"),
        lambda: pictures.histograms({"resnet": [0.1, 0.1, 0.4]}, "seconds"),
    ],
    ids=["distributions", "over_time", "sweep", "gantt", "points", "bars", "histograms"],
)
def test_pictures_show_something_in_colour(draw: Callable[[], bytes]) -> None:
    pixels = np.asarray(Image.open(io.BytesIO(draw())).convert("HSV"))
    assert pixels.shape[1] > 1000
    assert (pixels[..., 1] > 120).mean() > 0.0002  # coloured ink


HOUR_S = 3600.0
LETTERS_HIGH = 20
"""pixels of a name in a picture"""


def test_a_gantt_picture_is_white_where_gpus_are_idle() -> None:
    busy, idle = finished().outcome, finished().outcome
    png = pictures.gantt({"hops": busy, "fifo": idle})
    pixels = np.asarray(Image.open(io.BytesIO(png)).convert("HSV"))
    assert 0.05 < (pixels[..., 1] > 120).mean() < 0.5  # one of three GPUs


def test_a_gantt_picture_begins_with_the_first_submission() -> None:
    later = shifted(finished().outcome, 3600.0)
    assert pictures.gantt({"hops": later}) == pictures.gantt({"hops": finished().outcome})


def test_a_gantt_picture_has_a_line_for_the_name_of_each_of_many_unlike_nodes() -> None:
    """Nodes of 64 GPUs whose types alternate had their names one upon the other."""
    unlike = replace(finished().outcome, gpu_types=("v100", "titan-xp", "k80", "gtx-1080-ti") * 16)
    alike = replace(unlike, gpu_types=tuple(sorted(unlike.gpu_types)))
    high, low = (Image.open(io.BytesIO(pictures.gantt({"hops": one}))).height for one in (unlike, alike))
    assert low < 64 * LETTERS_HIGH < high


@pytest.mark.parametrize(
    ("middles", "spread"),
    [([5, 50, 95], [5, 50, 95]), ([50, 51, 52], [50, 60, 70]), ([5, 98, 99], [5, 90, 100])],
)
def test_names_beside_a_gantt_picture_are_a_line_apart(middles: list[float], spread: list[float]) -> None:
    assert pictures.spread_out(middles, 100, 10) == spread


def shifted(one: Simulated, by_s: float) -> Simulated:
    jobs = tuple(replace(job, submitted_at=job.submitted_at + by_s) for job in one.jobs)
    holds = [
        replace(hold, started_at=hold.started_at + by_s, ended_at=hold.ended_at + by_s) for hold in one.holds
    ]
    return replace(one, result=replace(one.result, job_results=jobs), holds=tuple(holds))


@pytest.mark.parametrize(
    ("value", "shown"),
    [(5.7e-15, "0"), (-5.7e-15, "0"), (0.0, "0"), (2.5e-3, "+0.0025"), (-1.234, "-1.23"), (1234.0, "+1,234")],
)
def test_a_rounding_error_is_shown_as_zero(value: float, shown: str) -> None:
    assert figure(value, signed=True) == shown


def test_a_policy_keeps_its_colour_and_strangers_differ() -> None:
    assert colour("hops", ["mine", "hops"]) == COLOURS["hops"]
    assert colour("mine", ["mine", "yours"]) != colour("yours", ["mine", "yours"])


def test_no_two_policies_have_the_same_line_while_there_are_others() -> None:
    most = (len(LISTED) + len(OTHERS)) * len(DASHES)
    arms = [*COLOURS, *(f"policy-{number}" for number in range(most - len(COLOURS)))]
    for some in (["a", "b", "c"], ["x", "fifo", "y", "hops", "z", "lr", "gap 0.01"], arms):
        lines = [line(arm, some) for arm in some]
        assert len({(each["color"], each["linestyle"]) for each in lines}) == len(some)
    assert line("one too many", [*arms, "one too many"])["color"] in OTHERS


@pytest.mark.parametrize("count", [1, 3, 12, 46])
def test_a_legend_covers_nothing_and_costs_the_panels_no_room(count: int) -> None:
    arms = ["hops", *(f"a-policy-{number}" for number in range(count - 1))]

    def draw(axes: Sequence[Axes]) -> None:
        for axis in axes:
            axis.set(title="title", xlabel="x", ylabel="y")
            for arm in arms:
                axis.plot([0.0, 1.0], [0.0, 1.0], **line(arm, arms))

    figure = laid_out(draw, columns=3, rows=1, height=3.4)
    figure.draw_without_rendering()
    (legend,) = figure.legends
    panels = [axis.get_tightbbox() for axis in figure.axes]
    assert all(panel and panel.y1 <= legend.get_window_extent().y0 for panel in panels)
    assert legend.get_window_extent().y1 <= figure.bbox.y1
    assert all(axis.get_window_extent().height / figure.dpi > 2 for axis in figure.axes)


def test_long_names_are_shown_whole_beside_bars_and_in_legends() -> None:
    """Options make a name long; the bars had a fifth of the width, and half of the legend lay outside."""
    arms = ["hops", "hops" + "".join(f"+minimum_run_restarts_{n}=2" for n in range(8))]
    with pytest.MonkeyPatch.context() as patch:
        figures: list[Figure] = []
        patch.setattr(
            pictures, "drawn", lambda draw, **given: figures.append(laid_out(draw, **WHOLE | given))
        )
        pictures.stacked({arm: dict.fromkeys(PARTS, 0.1) for arm in arms})
        pictures.distributions({"JCT": {arm: [1.0, 2.0] for arm in arms}}, arms, of="jobs")
    for each in figures:
        each.canvas.draw()
        panel, (legend,) = each.axes[0], each.legends
        assert panel.get_window_extent().width > each.bbox.width / 2
        inside = legend.get_window_extent()
        assert inside.x0 >= 0
        assert max(text.get_window_extent().x1 for text in legend.get_texts()) <= each.bbox.x1
    beside = [text.get_text() for text in figures[0].axes[0].get_yticklabels()]
    assert [text.replace("\n", "") for text in beside] == arms


def test_a_curve_over_time_keeps_its_area() -> None:
    grid, values = pictures.sampled([[(0.0, 2.0), (1.0, 0.0), (2.0, 4.0), (3.0, 0.0), (10.0, 0.0)]])
    assert np.trapezoid(values[0], grid) == pytest.approx(6.0, rel=0.02)


def test_ours_stand_above_the_papers() -> None:
    parts = comparison.compared([finished("hops", seed) for seed in (1, 2)], TABLE_3, "Table 3")
    table = next(part for part in parts if isinstance(part, Table))
    assert [row[:3] for row in table.rows] == [["**hops**", "here", "2 ± 0"], ["", "*Table 3*", "*9.51*"]]


def test_the_second_group_is_not_set_beside_the_paper() -> None:
    both = [finished("hops", group="as in the paper"), finished("hops", group="as its authors set it")]
    found = comparison.figures_of(both, TABLE_3)
    assert {figure.group for figure in found if figure.paper is not None} == {"as in the paper"}


def test_figures_say_how_far_arms_are_from_the_first_seed_by_seed() -> None:
    """The interval is of the differences: what all arms have in common at a seed is not in it."""
    done = [
        finished(arm, seed, makespan_s=HOUR_S * (10 * seed + more))
        for arm, more in (("hops", 0.0), ("sia", 2.0), ("gavel", -1.0))
        for seed in (1, 2)
    ]
    found = {
        one.arm: (one.mean, one.half_width)
        for one in comparison.figures_of(done, {})
        if one.group == "all, less hops" and one.measure == "makespan"
    }
    assert found == {"sia": (2.0, 0.0), "gavel": (-1.0, 0.0)}
    by_job = {
        (one.measure, one.mean)
        for one in comparison.figures_of(done, {})
        if one.group == "all, job by job less hops"
    }
    assert by_job == {("JCT", 0.0), ("WT", 0.0), ("LR", 0.0), ("FTF ρ", 0.0), ("better JCT", 50.0)}


def test_a_lead_that_grows_along_a_sweep_has_an_interval() -> None:
    done = [
        finished(arm, seed, at=rate, jct_s_mean=HOUR_S * (rate + seed + lead * seed * (rate == 60.0)))
        for arm, lead in (("hops", 0.0), ("gavel", 2.0))
        for rate in (30.0, 60.0)
        for seed in (1, 3)
    ]
    [found] = [one for one in comparison.leads_of(done) if one.measure == "mean JCT"]
    assert (found.group, found.arm, found.at) == ("all, less hops, less at 30", "gavel", 60.0)
    assert found.values == (2.0, 6.0)


def test_equal_seeds_are_no_sample_of_a_lead() -> None:
    def done(arm: str, seed: int, rate: float, hours: float) -> Finished:
        one = finished(arm, seed, at=rate, jct_s_mean=HOUR_S * hours)
        same = replace(one.outcome.result, job_results=finished(arm).outcome.jobs)
        return replace(one, outcome=replace(one.outcome, result=same))

    runs = [
        done(arm, seed, rate, rate + lead * rate)
        for arm, lead in (("hops", 0.0), ("gavel", 1.0))
        for rate in (30.0, 60.0)
        for seed in (1, 2, 3)
    ]
    [found] = [one for one in comparison.leads_of(runs) if one.measure == "mean JCT"]
    assert (found.values, found.half_width) == ((30.0,), None)


def test_jobs_are_compared_with_themselves() -> None:
    parts = list(comparison.compared([finished("hops"), finished("fifo")], {}, ""))
    rows = next(part for part in parts if isinstance(part, Table) and part.columns[1] == ">JCT, min").rows
    assert rows == [["**fifo**", "0", "0", "0", "0", "0", "50%"]]


def test_lost_gpu_time_is_a_share_of_a_time_that_it_is_part_of() -> None:
    time = GpuTime(
        useful=50.0,
        slower_types=10.0,
        gangs=20.0,
        restarts=20.0,
        profiling=300.0,
        beside_waiting=0.0,
        idle=0.0,
    )
    one = replace(finished().outcome, gpu_time=time)
    rows = {row[0]: row[1] for row in causes({"fifo": [one], "sia": [finished().outcome]}).rows}
    assert rows["GPU time lost, %"] == "20"


def test_a_sweep_has_a_row_a_place() -> None:
    parts = comparison.swept(
        [finished("hops", at=30.0), finished("hops", at=60.0, jct_s_mean=7200.0)], "jobs per hour"
    )
    table = [part for part in parts if isinstance(part, Table)][1]
    assert table.rows == [["30", "1"], ["60", "2"]]


def test_a_sweep_without_a_completed_job_has_no_picture() -> None:
    done = [finished("hops", at=at, makespan_s=None, jct_s_mean=None, lr_max=None) for at in (30.0, 60.0)]
    parts = list(comparison.swept(done, "jobs per hour"))
    assert not any(isinstance(part, Picture) for part in parts)
    assert next(part for part in parts if isinstance(part, Table)).rows == [["30", "–"], ["60", "–"]]


def test_the_page_needs_no_other_file_and_shows_text_as_text() -> None:
    picture = Picture("one", "it's <b> & so on", pictures.histograms({"x": [1.0, 2.0]}, "s"))
    html = page(Report("A & B", ["text", picture, Table(["a"], [["<script>"]])], []))
    assert html.count("data:image/png;base64,") == 1
    assert 'src="plots' not in html
    assert "<script>" not in html
    assert "<title>A &amp; B</title>" in html
    assert "<figcaption>it&#x27;s &lt;b&gt; &amp; so on</figcaption>" in html
    assert "http" not in html.split("base64,")[0]


def test_the_page_has_contents_that_lead_to_every_heading() -> None:
    html = page(Report("T", ["Before.", "## One & two", "text", "### Three", "## Four"], []))
    links = re.findall(r'<li class="(h.)"><a href="#([^"]+)">([^<]+)</a>', html)
    assert [(tag, text) for tag, _, text in links] == [
        ("h2", "One &amp; two"),
        ("h3", "Three"),
        ("h2", "Four"),
    ]
    assert all(f'<{tag} id="{name}">' in html for tag, name, _ in links)
    assert html.index("Before.") < html.index("<nav") < html.index("<h2")


def test_a_gantt_picture_of_the_page_names_jobs_and_says_more_of_each() -> None:
    svg = gantt_svg({"hops": finished().outcome, "fi<fo": finished().outcome})
    assert svg.count("<path d=") == 2  # of one job in each arm
    assert "<title>a: resnet18 on cifar10, completed\nwaited 1m 00s, JCT 1h 01m, LR 0.1\n" in svg
    assert svg.count('class="job"') == 2
    assert "fi&lt;fo" in svg
    assert svg.count(">titan-xp<") == svg.count(">rtx-3090<") == 2


def test_the_names_of_types_with_few_gpus_stand_apart() -> None:
    """Ten types of which one has nearly all GPUs: the names of the others lay on one another."""
    one = finished("fifo", 1).outcome
    types = ("t4",) * 64 + tuple(f"type-{number}" for number in range(9))
    drawn = gantt_svg({"fifo": replace(one, gpu_types=types)})
    heights = [float(y) for y in re.findall(r'class="type" x="88" y="([0-9.]+)"', drawn)]
    assert len(heights) == 10
    assert all(low - high >= 9.9 for high, low in pairwise(heights))
    bottom = max(float(y) for y in re.findall(r'class="tick" x="[0-9.]+" y="([0-9.]+)"', drawn)) - 13
    assert heights[-1] <= bottom + 0.1


def test_gpus_side_by_side_are_one_rectangle() -> None:
    stay = [Hold(gpu=gpu, job=0, started_at=0.0, ended_at=60.0) for gpu in (0, 1, 2, 5)]
    later = Hold(gpu=1, job=0, started_at=90.0, ended_at=99.0)
    assert boxes([later, *stay]) == {0: [Box(0, 2, 0.0, 60.0), Box(5, 5, 0.0, 60.0), Box(1, 1, 90.0, 99.0)]}


def test_a_report_says_its_subject_and_draws_no_empty_picture() -> None:
    one = finished()
    idle = replace(one.outcome, holds=(), plans=())
    for outcome, empty in ((one.outcome, False), (idle, True)):
        parts = list(comparison.compared([replace(one, outcome=outcome)], {}, ""))
        assert any(isinstance(part, Picture) for part in parts) != empty
    text = "".join(part for part in comparison.compared([one], {}, "") if isinstance(part, str))
    for term in ("**LR**, latency ratio", "**FTF ρ**, finish-time fairness", "**frag**, fragments"):
        assert text.count(term) == 1


def test_without_fragments_there_is_no_picture_of_them() -> None:
    one = finished()
    none = replace(one.outcome, plans=(plan(fragments=0),))
    parts = list(comparison.compared([replace(one, outcome=none)], {}, ""))
    assert "group-1-fragments" not in [part.name for part in parts if isinstance(part, Picture)]
    assert any("no plan left a GPU idle" in part for part in parts if isinstance(part, str))


def test_jobs_are_listed_with_their_outcome() -> None:
    parts = list(comparison.compared([finished("hops"), finished("fifo")], {}, ""))
    (listed,) = (part for part in parts if isinstance(part, Folded))
    assert listed.title == "The 2 jobs of seed 1"
    assert listed.table.rows[0] == ["a", "resnet18", "0s", "1h 01m (1m 00s)", "1h 01m (1m 00s)"]


def test_a_report_is_written_whole(tmp_path: Path) -> None:
    report = Report("T", ["text", Table(["a", ">b"], [["x|y", "1"]])], [])
    written = Written(experiment="t", about={}, figures=(), failures=())
    page_path, text_path, json_path = write(tmp_path, report, written)
    assert "| x\\|y | 1 |" in text_path.read_text()
    assert (
        '<td style="text-align:left">x|y</td>\n<td style="text-align:right">1</td>' in page_path.read_text()
    )
    assert json_path.read_text().startswith("{")


def test_tidy_files_have_an_observation_a_row(tmp_path: Path) -> None:
    write_parquet(tmp_path, [finished("hops", 1), finished("fifo", 2)])
    assert read(tmp_path / "jobs.parquet", "arm, seed, job_id") == [
        ("hops", 1, "a"), ("hops", 1, "b"), ("fifo", 2, "a"), ("fifo", 2, "b"),
    ]  # fmt: skip
    assert read(tmp_path / "curves.parquet", "time_s, throughput")[:2] == [(0.0, 0.0), (10.0, 2.0)]
    assert read(tmp_path / "executions.parquet") == []


def test_a_tidy_file_that_cannot_be_written_is_named_and_those_before_stay_whole(tmp_path: Path) -> None:
    write_parquet(tmp_path, [finished("hops", 1)])
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, usual[1]))
    try:
        with pytest.raises(Failure, match=re.escape(f"{tmp_path / 'metrics.parquet'}: file too large")):
            write_parquet(tmp_path, [finished("hops", 1), finished("fifo", 2)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert sorted(file.stem for file in tmp_path.iterdir()) == sorted(KINDS)
    assert len(read(tmp_path / "jobs.parquet")) == 2


def test_tidy_files_keep_types_missing_values_and_infinities(tmp_path: Path) -> None:
    write_parquet(tmp_path, [finished("hops", 1, at=30.0, ftf_rho_max=math.inf), finished("it's", 2)])
    metrics = duckdb.read_parquet(str(tmp_path / "metrics.parquet"))
    assert dict(zip(metrics.columns, map(str, metrics.types), strict=True)) == {
        "group": "VARCHAR", "arm": "VARCHAR", "at": "DOUBLE", "policy": "VARCHAR", "seed": "BIGINT",
        "metric": "VARCHAR", "value": "DOUBLE",
    }  # fmt: skip
    rows = read(tmp_path / "metrics.parquet", 'arm, "at", metric, value')
    assert ("hops", 30.0, "ftf_rho_max", math.inf) in rows
    assert ("it's", None, "ftf_rho_max", 2.0) in rows


def read(path: Path, columns: str = "*") -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = duckdb.read_parquet(str(path)).project(columns).fetchall()
    return rows


def test_every_experiment_makes_runs() -> None:
    for experiment in EXPERIMENTS.values():
        cases = list(experiment.cases(options(quick=True)))
        assert {case.seed for case in cases} == {1, 2}


def test_places_named_on_an_axis_keep_apart() -> None:
    assert apart([64, 128, 256, 512, 1000, 1500, 2048]) == [64, 128, 256, 512, 1000, 2048]
    assert apart([100.0]) == [100.0]


@pytest.mark.parametrize("low", [1e-2, 1e-5, 1e-9])
def test_a_logarithmic_axis_names_few_decades_however_many_there_are(low: float) -> None:
    axes = Figure(figsize=(2.5, 2)).subplots()
    axes.plot([low, 10.0], [0.0, 1.0])
    logarithmic(axes, "x")
    shown = [at for at in axes.get_xticks() if axes.get_xlim()[0] <= at <= axes.get_xlim()[1]]
    assert 2 <= len(shown) <= 6
