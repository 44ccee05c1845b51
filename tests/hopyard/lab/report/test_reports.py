import io
import math
from pathlib import Path

import duckdb
import numpy as np
import pytest
from msgspec.structs import replace
from PIL import Image

from hopyard.lab.experiments import comparison
from hopyard.lab.experiments.paper import TABLE_3
from hopyard.lab.experiments.suite import EXPERIMENTS
from hopyard.lab.report import pictures
from hopyard.lab.report.document import Picture, Report, Table, Written, page, write
from hopyard.lab.report.drawing import COLOURS, apart, colour
from hopyard.lab.report.measures import figure
from hopyard.lab.report.parquet import write as write_parquet
from hopyard.lab.report.statistics import summary
from hopyard.lab.runs.trials import Simulated
from tests.hopyard.lab.experiment_builders import finished, options

ARMS = {"hops": [1.0, 2.0, 4.0], "fifo": [2.0, 3.0, 9.0]}
NAMES = list(ARMS)
CURVES = {arm: [[(float(hour), value) for hour, value in enumerate(values)]] for arm, values in ARMS.items()}


@pytest.mark.parametrize(
    "png",
    [
        pictures.distributions({"JCT": ARMS, "LR": ARMS}, NAMES, of="jobs", log=("LR",)),
        pictures.over_time(CURVES, NAMES, "GPUs"),
        pictures.sweep(
            {"JCT": {arm: {30.0: summary(each), 60.0: summary(each)} for arm, each in ARMS.items()}},
            NAMES,
            "rate",
        ),
        pictures.gantt({"hops": finished().outcome, "fifo": finished().outcome}),
        pictures.points(
            {"": {arm: [(1.0, value) for value in each] for arm, each in ARMS.items()}},
            NAMES,
            ("x", "y"),
            log="y",
        ),
        pictures.bars({"vgg": {"a": {"1×1": {"predicted": 1.0, "measured": 2.0}}}}, "samples/s"),
        pictures.histograms({"resnet": [0.1, 0.1, 0.4]}, "seconds"),
    ],
    ids=["distributions", "over_time", "sweep", "gantt", "points", "bars", "histograms"],
)
def test_pictures_show_something_in_colour(png: bytes) -> None:
    pixels = np.asarray(Image.open(io.BytesIO(png)).convert("HSV"))
    assert pixels.shape[1] > 1000
    assert (pixels[..., 1] > 120).mean() > 0.0002  # coloured ink


def test_a_gantt_picture_is_white_where_nobody_is() -> None:
    busy, idle = finished().outcome, finished().outcome
    png = pictures.gantt({"hops": busy, "fifo": idle})
    pixels = np.asarray(Image.open(io.BytesIO(png)).convert("HSV"))
    assert 0.05 < (pixels[..., 1] > 120).mean() < 0.5  # one of three GPUs


def test_a_gantt_picture_begins_with_the_first_submission() -> None:
    later = shifted(finished().outcome, 3600.0)
    assert pictures.gantt({"hops": later}) == pictures.gantt({"hops": finished().outcome})


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
def test_what_adding_floats_leaves_is_nothing(value: float, shown: str) -> None:
    assert figure(value, signed=True) == shown


def test_a_policy_keeps_its_colour_and_strangers_differ() -> None:
    assert colour("hops", ["mine", "hops"]) == COLOURS["hops"]
    assert colour("mine", ["mine", "yours"]) != colour("yours", ["mine", "yours"])


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


def test_jobs_are_compared_with_themselves() -> None:
    parts = list(comparison.compared([finished("hops"), finished("fifo")], {}, ""))
    rows = next(part for part in parts if isinstance(part, Table) and part.columns[1] == ">JCT, min").rows
    assert rows == [["**fifo**", "0", "0", "0", "0", "0", "50%"]]


def test_a_sweep_has_a_row_a_place() -> None:
    parts = comparison.swept(
        [finished("hops", at=30.0), finished("hops", at=60.0, jct_s_mean=7200.0)], "jobs per hour"
    )
    table = [part for part in parts if isinstance(part, Table)][1]
    assert table.rows == [["30", "1"], ["60", "2"]]


def test_the_page_needs_no_other_file_and_shows_text_as_text() -> None:
    picture = Picture("one", "it's <b> & so on", pictures.histograms({"x": [1.0, 2.0]}, "s"))
    text = f"# Title\n\n![{picture.caption}](plots/one.png)\n\n| a |\n| :-- |\n| <script> |\n"
    html = page("A & B", text, [picture])
    assert html.count("data:image/png;base64,") == 1
    assert 'src="plots' not in html
    assert "<script>" not in html
    assert "<figcaption>it's &lt;b&gt; &amp; so on</figcaption>" in html
    assert "http" not in html.split("base64,")[0]


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


def test_tidy_files_keep_kinds_and_what_is_unknown_or_without_end(tmp_path: Path) -> None:
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
