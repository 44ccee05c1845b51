"""Trace files: the real ones are read whole, and a planted fault is named by file and line."""

import os
import re
from pathlib import Path
from typing import Any

import pytest

from loadgen.scenarios import load_cluster
from loadgen.workloads.jobs import HOUR_S, ReferenceCache
from loadgen.workloads.readers.rows import MalformedRow
from loadgen.workloads.trace import read_trace, trace_arrivals
from schemas.scenarios import Arrival, TraceColumns, TraceWorkload
from shared.runtime.files import InvalidFile
from tests.paths import ROOT, data

REAL = [
    ("philly/philly_500.csv", "philly", 500),
    ("philly/philly.csv", "philly", 82_247),
    ("ms_itp2021/raw_cluster01_300.csv", "microsoft", 300),
    ("ms_itp2021/raw_cluster05_300.csv", "microsoft", 300),
    ("ms_itp2021/ef_cluster01_300.csv", "microsoft", 300),
    ("ms_itp2021/195job.csv", "microsoft", 195),
    ("gavel/small_test.trace", "gavel", 20),
    ("gavel/max_min_fairness.trace", "gavel", 96),
    ("gavel/msr_0e4a51_seed0.trace", "gavel", 1_181),
    ("pop_philly_gavel/2869ce_200.trace", "gavel", 200),
    ("pollux/workload-6.csv", "pollux", 160),
]

PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n"
MICROSOFT = "job_id,submission_time,duration,num_gpu\n"
POLLUX = "name,time,application,num_replicas,batch_size\n"
GAVEL_7 = "LM (batch size 10)\tcd x\t--steps\t1\t1000\t{}\t{}\n"


def real(name: str) -> str:
    path = data(f"traces/{name}")
    if not path.exists():
        pytest.skip(f"{name} has no licence to ship under, and is not at {path}")
    return str(path)


def planted(folder: Path, text: str) -> str:
    path = folder / "planted"
    path.write_text(text)
    return str(path)


def jobs(path: str, mix: str = "hops-table-2", limit: int | None = None, seed: int = 1) -> list[Arrival]:
    return trace_arrivals(TraceWorkload(path=path, mix=mix, limit=limit), load_cluster("hops-64"), seed)


@pytest.mark.parametrize(("name", "kind", "rows"), REAL, ids=[name for name, _, _ in REAL])
def test_every_row_of_a_real_trace_is_taken(name: str, kind: str, rows: int) -> None:
    trace = read_trace(real(name))

    assert (trace.format, trace.rows) == (kind, rows)
    assert [job.arrival_s for job in trace.jobs] == sorted(job.arrival_s for job in trace.jobs)


def test_a_trace_of_an_unknown_layout_is_refused() -> None:
    name = "shockwave/120_0.2_5_100_40_25_0,0.5,0.5_0.6,0.3,0.09,0.01_multigpu_dynamic.trace"
    with pytest.raises(MalformedRow, match="12 columns where Gavel has 7, 8 or 10"):
        read_trace(real(name), "gavel")


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        (PHILLY + "2017-10-09 07:01:55,66.0,1,66.0,11cb48\nyesterday,66.0,1,66.0,11cb48\n", 3, "not a time"),
        (PHILLY + "2017-10-09 07:01:55,nan,1,66.0,11cb48\n", 2, "finite"),
        (PHILLY + "2017-10-09 07:01:55,0,1,66.0,11cb48\n", 2, "duration must be above 0"),
        (PHILLY + "2017-10-09 07:01:55,66.0,1\n", 2, "3 columns where the header has 5"),
        (MICROSOFT + "a,10,20,0\n", 2, "num_gpu must be at least 1"),
        (MICROSOFT + "a,10,20,1.5\n", 2, "whole number"),
        (MICROSOFT + "a,-10,20,1\n", 2, "submission_time must be at least 0"),
        (MICROSOFT + "\na,10,,1\n", 3, "duration is empty"),
        (POLLUX + "c-0,53,cifar10,many,128\n", 2, "num_replicas is not a number: many"),
        (POLLUX + "c-0,53,,1,128\n", 2, "application is empty"),
        (GAVEL_7.format(0, 1) + GAVEL_7.format("inf", 1), 2, "arrival must be at least 0 and finite"),
        (MICROSOFT.replace("\n", ",duration\n"), 1, "the header has duration twice"),
        (MICROSOFT + 'a,10,20,1\n"b,10,20,1\n' + "c,10,20,1\n" * 20_000, 3, "a quote is not closed"),
        (MICROSOFT + 'a,10,20,1\nb,10,20,"1\n' + "c,10,20,1\n" * 9, 3, "a quote is not closed"),
        (MICROSOFT + '"b\n\n",10,20\n', 2, "3 columns where the header has 4"),
        (MICROSOFT.replace("\n", f",{'x' * 200_000}\n"), 1, "is not CSV: field larger"),
        (GAVEL_7.format(0, 1) + "LM\t1\n", 2, "2 columns where Gavel"),
        ("(LM)" + GAVEL_7.format(0, 1)[2:], 1, "not one of Gavel's"),
        (MICROSOFT + "a,10,20,1e30\n", 2, "1e+30 GPUs: at most 100000"),
        (MICROSOFT + "a,10,20,1\nb,10,1e300,1\n", 3, "1e+300 seconds of running: at most 1e+09"),
        (MICROSOFT + "a,1e300,20,1\nb,10,20,1\n", 2, "arrives more than 1e+09 s after the first job"),
        (GAVEL_7.replace("1000", "1e308").format(0, 1), 1, "inf samples: at most 1e+18"),
    ],
)
def test_a_malformed_row_is_refused_with_its_line(tmp_path: Path, text: str, line: int, reason: str) -> None:
    path = planted(tmp_path, text)
    with pytest.raises(MalformedRow) as refused:
        read_trace(path)

    assert (refused.value.path, refused.value.line) == (path, line)
    assert reason in refused.value.reason


def test_a_quoted_cell_may_have_line_breaks_and_the_last_line_none(tmp_path: Path) -> None:
    found = read_trace(planted(tmp_path, MICROSOFT + '"a\nb",10,20,1\nc,11,20,"1"'))
    assert [job.line for job in found.jobs] == [2, 4]


@pytest.mark.parametrize(
    ("text", "reason"), [("a,b\n1,2\n", "looks like none"), ("", "looks like none"), (PHILLY, "has no jobs")]
)
def test_a_file_that_is_no_trace_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(InvalidFile, match=reason):
        read_trace(planted(tmp_path, text))


@pytest.mark.parametrize("columns", [None, TraceColumns(submit="a", gpus="b")])
def test_a_pipe_is_no_trace(tmp_path: Path, columns: TraceColumns | None) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidFile, match="is no regular file"):
        read_trace(str(tmp_path / "pipe"), columns=columns)


def test_a_missing_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match="No such file"):
        read_trace(str(tmp_path / "nowhere"))


def test_jobs_are_sorted_and_counted_from_the_first_arrival(tmp_path: Path) -> None:
    path = planted(tmp_path, MICROSOFT + "a,90,10,1\nb,50,10,1\nc,70,10,1\n")

    assert [job.at_s for job in jobs(path)] == [0.0, 20.0, 40.0]
    assert [job.at_s for job in jobs(path, limit=2)] == [0.0, 20.0]


def test_models_are_dealt_by_seed_and_line(tmp_path: Path) -> None:
    path = planted(tmp_path, MICROSOFT + "".join(f"a,{line},3600,2\n" for line in range(40)))

    assert jobs(path, seed=5) == jobs(path, seed=5)
    assert jobs(path, seed=5) != jobs(path, seed=6)
    assert jobs(path, seed=5, limit=10) == jobs(path, seed=5)[:10]
    assert len({job.job.workload.model for job in jobs(path)}) > 5


def test_a_model_the_trace_names_is_kept_when_the_mix_has_it(tmp_path: Path) -> None:
    path = planted(tmp_path, POLLUX + "c-0,53,cifar10,6,2048\nc-1,54,cifar10,8,2048\n")

    assert {job.job.workload.dataset for job in jobs(path, "pollux-table-1")} == {"cifar10"}


def test_the_work_of_a_job_is_its_gpu_time_at_the_clusters_mean_speed(tmp_path: Path) -> None:
    path = planted(tmp_path, MICROSOFT + "a,0,3600,4\nb,1,7200,4\n")
    twice = [job.job for job in jobs(path, "jps-table-3", seed=2)]
    same_model = [job for job in twice if job.workload.model == twice[0].workload.model]

    assert twice[0].gpus == [4]
    assert all(job.samples is not None and job.samples > 0 for job in twice)
    if len(same_model) == 2:
        assert same_model[1].samples == pytest.approx(2 * (same_model[0].samples or 0), rel=1e-6)


def test_a_job_larger_than_the_cluster_keeps_its_work_on_fewer_gpus(tmp_path: Path) -> None:
    wide = planted(tmp_path, MICROSOFT + "a,0,3600,128\n")
    (job,) = jobs(wide)
    narrow = planted(tmp_path, MICROSOFT + "a,0,460800,1\n")
    (same,) = jobs(narrow)

    assert (job.traced_gpus, same.traced_gpus) == (128, None)
    assert job.job.gpus in ([16], [32])
    assert job.job.samples == same.job.samples


# ---- which jobs of a trace


def taken(path: str, seed: int = 1, **fields: Any) -> list[Arrival]:  # noqa: ANN401 - any field
    workload = TraceWorkload(**{"path": path, "mix": "hadar-table-2"} | fields)
    return trace_arrivals(workload, load_cluster("hadar-60"), seed)


def daily(folder: Path) -> str:
    """A job at each hour of two days, of as many minutes on one GPU."""
    rows = (
        f"2017-10-{day:02d} {hour:02d}:30:00,{60 * hour + 60},1,0,vc\n"
        for day in (9, 10)
        for hour in range(24)
    )
    return planted(folder, PHILLY + "".join(rows))


def test_only_jobs_of_some_hours_of_the_day_are_taken(tmp_path: Path) -> None:
    found = taken(daily(tmp_path), hours=(3, 10))
    assert [job.at_s / 3600 for job in found] == [*range(7), *range(24, 31)]
    assert len(taken(daily(tmp_path), hours=(0, 24))) == 48


def test_hours_of_the_day_are_those_of_the_zone_that_a_date_names(tmp_path: Path) -> None:
    zoned = ("2017-11-05T01:30:00-07:00", "2017-11-05T01:45:00-08:00", "2017-11-05T08:30:00-08:00")
    path = planted(tmp_path, OURS + "".join(f"{when},1,60,,\n" for when in zoned))
    assert [job.at_s for job in taken(path, columns=COLUMNS, hours=(1, 2))] == [0.0, 4500.0]
    assert [job.at_s for job in taken(path, columns=COLUMNS, hours=(8, 9))] == [0.0]


def test_some_are_drawn_by_the_seed_and_come_in_their_order(tmp_path: Path) -> None:
    path = daily(tmp_path)
    drawn = taken(path, sample=12)
    assert len({job.at_s for job in drawn}) == 12
    assert [job.at_s for job in drawn] == sorted(job.at_s for job in drawn)
    assert taken(path, sample=12) == drawn
    assert taken(path, sample=12, seed=2) != drawn


def test_more_than_there_are_cannot_be_drawn(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match="has 14 jobs between hours 3 and 10, 15 are wanted"):
        taken(daily(tmp_path), hours=(3, 10), sample=15)
    with pytest.raises(InvalidFile, match="has 9 jobs between hours 3 and 10 with limit 9, 15 are wanted"):
        taken(daily(tmp_path), hours=(3, 10), limit=9, sample=15)
    early = planted(tmp_path, PHILLY + "2017-10-09 01:00:00,60,1,0,vc\n")
    with pytest.raises(InvalidFile, match="has 0 jobs between hours 3 and 10, 1 are wanted"):
        taken(early, hours=(3, 10))


def test_all_may_be_there_at_once(tmp_path: Path) -> None:
    assert {job.at_s for job in taken(daily(tmp_path), at_once=True)} == {0.0}


def test_a_long_job_is_cut(tmp_path: Path) -> None:
    rows = "".join(f"2017-10-09 07:01:55,{3600 * hours},2,0,vc\n" for hours in (40, 100))
    (whole, long), (same, cut) = (
        taken(planted(tmp_path, PHILLY + rows), by_size=True, longest_gpu_hours=most)
        for most in (None, 100.0)
    )
    assert same == whole
    assert (long.job.samples or 0.0) == pytest.approx(2 * (cut.job.samples or 0.0))


def test_a_long_job_is_cut_whose_size_is_drawn(tmp_path: Path) -> None:
    path = planted(tmp_path, POLLUX + "".join(f"c-{number},{number},bert,1,12\n" for number in range(20)))
    drawn, cut = (gpu_hours_of(path, longest_gpu_hours=most) for most in (None, 0.2))
    assert max(drawn) > 0.3
    assert cut == pytest.approx([min(hours, 0.2) for hours in drawn], rel=1e-3)


def gpu_hours_of(path: str, **fields: Any) -> list[float]:  # noqa: ANN401 - any field
    """The sizes of the jobs that are taken."""
    reference = ReferenceCache(load_cluster("hadar-60"))
    models = reference.catalogue.models
    return [
        (one.job.samples or 0.0)
        / HOUR_S
        / reference.rate(models[one.job.workload.model, one.job.workload.dataset])
        for one in taken(path, **fields)
    ]


@pytest.mark.parametrize(
    ("gpu_hours", "models"),
    [
        (0.01, {"resnet18"}),
        (0.9, {"resnet18"}),
        (1.5, {"cyclegan"}),
        (20.0, {"lstm", "transformer"}),
        (55.0, {"resnet50"}),
        (800.0, {"resnet50"}),
    ],
)
def test_a_model_is_dealt_from_the_job_s_own_class_of_size(
    tmp_path: Path, gpu_hours: float, models: set[str]
) -> None:
    row = f"2017-10-09 07:01:55,{3600 * gpu_hours},1,0,vc\n"
    found = taken(planted(tmp_path, PHILLY + 12 * row), by_size=True)
    assert {job.job.workload.model for job in found} == models


def test_a_mix_may_hold_a_model_to_one_gpu(tmp_path: Path) -> None:
    row = "2017-10-09 07:01:55,3600,8,0,vc\n"
    [alone] = taken(planted(tmp_path, PHILLY + row), by_size=True)
    assert (alone.job.workload.model, alone.job.gpus) == ("cyclegan", [1])


def test_steps_of_a_gavel_job_become_samples(tmp_path: Path) -> None:
    path = planted(tmp_path, GAVEL_7.format(0, 2))
    (job,) = jobs(path, "hadar-table-2")

    assert job.job.workload.model == "lstm"
    assert job.job.samples == 10_000


HELIOS = TraceColumns(submit="submit_time:us", gpus="num_chips", seconds="duration_s", user="user")
OURS = "when,n,ran,what,who\n"
COLUMNS = TraceColumns(submit="when", gpus="n", seconds="ran:min", model="what", user="who")


def test_a_real_trace_of_no_known_format_is_read_by_its_columns() -> None:
    trace = read_trace(real("helios/helios_venus_2vc_sept.csv"), columns=HELIOS)
    assert (trace.format, trace.rows) == ("columns", 1_867)
    first = trace.jobs[0]
    assert (first.arrival_s, first.gpus, first.duration_s, first.user) == (5835.0, 128, 24.0, "uH3om")


@pytest.mark.parametrize(
    ("delimiter", "when"),
    [
        (",", "60"),
        (",", "6e1"),
        (";", "1970-01-01 00:01:00"),
        ("\t", "1970-01-01T02:01:00+02:00"),
        (",", "1970-01-01T00:01:00Z"),
    ],
)
def test_columns_are_read_with_any_separator_and_form_of_time(
    tmp_path: Path, delimiter: str, when: str
) -> None:
    lines = ("\ufeff# from us\n", OURS, f"{when},2,1.5,resnet18,ann\n")
    (job,) = read_trace(planted(tmp_path, "".join(lines).replace(",", delimiter)), columns=COLUMNS).jobs
    assert (job.line, job.arrival_s, job.gpus, job.duration_s) == (3, 60.0, 2, 90.0)
    assert (job.model, job.user) == ("resnet18", "ann")


@pytest.mark.parametrize(
    ("text", "line", "column", "reason"),
    [
        (OURS + "soon,1,2,,\n", 2, "when", "when is neither a number nor a date: soon"),
        (OURS + "inf,1,2,,\n", 2, "when", "when must be at least 0 and finite, not inf"),
        (OURS + "1,1,2,,\n2,0,2,,\n", 3, "n", "n must be at least 1 and finite, not 0"),
        (OURS + "1,1,0,,\n", 2, "ran", "ran must be above 0"),
        (OURS + "1,1,x,,\n", 2, "ran", "ran is not a number: x"),
        ("# a\nwhen,gpus,ran,what,who\n", 2, "n", "the header lacks n; it has when, gpus, ran, what, who"),
        (OURS + "1,1,2,,ann\n2,1,2,,b\x1bb\n", 3, "who", "who has control characters"),
        (OURS + '1,1,2,,"ann\nb"\n', 2, "who", "who has control characters"),
        (OURS + "1,1,2\n", 2, None, "3 columns where the header has 5"),
        ("# a\nwhen,n,ran,what,who,n\n0,1,2,,,8\n", 2, "n", "the header has n twice"),
        (
            OURS + "20171009,1,2,,\n2017-10-10,1,2,,\n",
            3,
            "when",
            "when is a date without a zone where the rows before have a number",
        ),
        (
            OURS + "2017-10-09 07:01:55,1,2,,\n5,1,2,,\n",
            3,
            "when",
            "when is a number where the rows before have a date without a zone",
        ),
        (
            OURS + "2024-10-27T01:30Z,1,2,,\n2024-10-27T02:30+01:00,1,2,,\n2024-10-27 03:30,1,2,,\n",
            4,
            "when",
            "when is a date without a zone where the rows before have a date with a zone",
        ),
    ],
)
def test_a_fault_in_a_column_is_named_with_line_and_column(
    tmp_path: Path, text: str, line: int, column: str | None, reason: str
) -> None:
    with pytest.raises(MalformedRow) as refused:
        read_trace(planted(tmp_path, text), columns=COLUMNS)
    assert (refused.value.line, refused.value.field, refused.value.reason) == (line, column, reason)


@pytest.mark.parametrize("number", [3, 4])
def test_a_file_of_too_many_jobs_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """As jobs, the rows of a file of 100 MB took gigabytes."""
    monkeypatch.setattr("loadgen.workloads.trace.JOBS_AT_MOST", 3)
    path = planted(tmp_path, "# rows\n\nt,n,d\n" + "0,1,1\n" * number)
    columns = TraceColumns(submit="t", gpus="n", seconds="d")
    if number == 3:
        assert read_trace(path, columns=columns).rows == 3
        return
    with pytest.raises(MalformedRow, match="has more than 3 jobs: leave out rows") as refused:
        read_trace(path, columns=columns)
    assert refused.value.line == 7


def test_a_path_that_no_file_can_have_is_refused_as_such() -> None:
    with pytest.raises(InvalidFile, match="File name too long"):
        read_trace("x" * 300)


def test_times_that_a_unit_makes_infinite_are_refused(tmp_path: Path) -> None:
    rows = OURS + "1e308,1,2,,\n1.1e308,1,2,,\n"
    with pytest.raises(MalformedRow, match="planted:2: arrives more than"):
        read_trace(planted(tmp_path, rows), columns=TraceColumns(submit="when:h", gpus="n"))


def test_models_by_the_name_of_the_catalogue_and_users_go_with_the_job(tmp_path: Path) -> None:
    path = planted(tmp_path, OURS + "1,2,60,vgg11,ann\n2,2,60,strange,\n")
    workload = TraceWorkload(path=path, columns=COLUMNS, mix="hops-table-2")
    first, second = trace_arrivals(workload, load_cluster("hops-64"), 1)
    assert (first.job.workload.model, first.job.user) == ("vgg11", "ann")
    assert second.job.user == ""


@pytest.mark.parametrize("name", ["resnet50", "ResNet-50"])
@pytest.mark.parametrize(("mix", "dataset"), [("hops-table-2", "imagenet"), ("short", "cifar10")])
def test_a_model_that_a_mix_has_on_another_data_set_is_not_replaced(
    tmp_path: Path, name: str, mix: str, dataset: str
) -> None:
    path = planted(tmp_path, OURS + f"1,1,60,{name},\n" * 9)
    found = trace_arrivals(TraceWorkload(path=path, columns=COLUMNS, mix=mix), load_cluster("hops-64"), 1)
    workloads = [one.job.workload for one in found]
    assert {(one.model, one.dataset) for one in workloads} == {("resnet50", dataset)}


def test_the_example_is_a_day_in_order() -> None:
    trace = read_trace(str(ROOT / "docs" / "examples" / "philly-day.csv"))
    assert (trace.format, trace.rows) == ("philly", 130)
    assert [job.line for job in trace.jobs] == list(range(2, 132))
    assert trace.jobs[-1].arrival_s - trace.jobs[0].arrival_s < 86_400


@pytest.mark.parametrize("page", ["README.md", "docs/scenarios.md", "docs/examples/README.md"])
def test_a_trace_that_a_page_reads_ships(page: str) -> None:
    shown = re.findall(r"--trace (docs/\S+)", (ROOT / page).read_text("utf-8"))
    assert shown
    assert all((ROOT / path).is_file() for path in shown)
