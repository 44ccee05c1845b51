"""Trials in processes of their own: what is kept, what is made again, what is said of a failure."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from experiment_builders import options, outcome, silent, trial

from hopyard.experiments.grids import Case
from hopyard.experiments.keeping import SUFFIX, keep, kept_at, name_of
from hopyard.experiments.runs import Pool
from hopyard.experiments.suite import DIFFERENCES, EXPERIMENTS, NOTES, Experiment, Plan, differences, perform
from hopyard.experiments.trials import Kept, Simulation, Trial
from hopyard.failures import Failure
from schemas.scenarios import TraceWorkload


def keep_made_up(folder: Path, one: Trial) -> Path:
    path = folder / (name_of(one) + SUFFIX)
    keep(path, Kept(trial=one, outcome=outcome("made-up"), wall_s=1.0))
    return path


def test_the_name_changes_with_whatever_could_change_the_outcome() -> None:
    names = {name_of(one) for one in (trial(), trial("hops"), trial(seed=2), trial(gap=0.1), trial(gap=0.2))}
    assert len(names) == 5
    assert name_of(trial(gap=0.1)) in names


def test_the_name_changes_with_the_trace(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    workload = TraceWorkload(path=str(trace), mix="short")
    one = Simulation(
        scenario=msgspec.structs.replace(trial().scenario, workload=workload), policy="fifo", seed=1
    )
    names = set()
    for text in ("a", "b"):
        trace.write_text(text)
        names.add(name_of(one))
    assert len(names) == 2


def test_a_damaged_outcome_is_none(tmp_path: Path) -> None:
    path = keep_made_up(tmp_path, trial())
    path.write_bytes(path.read_bytes()[:-10])
    assert kept_at(path) is None


def test_what_was_kept_is_not_made_again_and_a_failure_is_told(tmp_path: Path) -> None:
    kept, fails = trial(), trial(no_such_setting=1)
    keep_made_up(tmp_path, kept)
    said: list[str] = []
    runs = asyncio.run(Pool(tmp_path, 2, said.append).run([kept, fails]))
    assert runs[0].outcome == outcome("made-up")
    assert runs[1].outcome is None
    assert "no_such_setting" in runs[1].failure
    assert "2 runs, 1 of them kept" in said[0]


def test_an_interrupted_experiment_goes_on_where_it_stopped(tmp_path: Path) -> None:
    trials = [trial(), trial(seed=2)]
    first = tmp_path / (name_of(trials[0]) + SUFFIX)
    said: list[str] = []

    async def interrupted() -> None:
        task = asyncio.create_task(Pool(tmp_path, 1, silent).run(trials))
        while not first.exists():
            assert not task.done()
            await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(interrupted())
    made_at = first.stat().st_mtime_ns
    runs = asyncio.run(Pool(tmp_path, 1, said.append).run(trials))
    assert [run.outcome is not None for run in runs] == [True, True]
    assert first.stat().st_mtime_ns == made_at
    assert [line.partition(" took")[0] for line in said[1:]] == ["[1/1] small fifo seed 2"]


def test_a_report_is_of_the_runs_that_did_not_fail_and_names_the_others(tmp_path: Path) -> None:
    trials = [trial(), trial(no_such_setting=1)]
    (tmp_path / "runs").mkdir()
    keep_made_up(tmp_path / "runs", trials[0])
    plan = Plan(
        name="half",
        experiment=Experiment(
            title="Half",
            about="One run fails.",
            cases=lambda _: (Case(group="all", arm="fifo", trial=one) for one in trials),
            tell=EXPERIMENTS["table3"].tell,
        ),
        options=options(),
        out=tmp_path,
        workers=1,
        events=False,
        about={},
    )
    with pytest.raises(Failure, match="runs that failed: 1"):
        perform(plan, silent)
    report = (tmp_path / "report.md").read_text()
    assert "- `small fifo seed 1 no_such_setting=1: ended with 1" in report
    assert "| **fifo** | here | 2 |" in report


def test_a_trial_reads_like_a_line() -> None:
    assert isinstance(trial(), Simulation)
    assert str(trial("hops", 3, gap=0.1)) == "small hops seed 3 gap=0.1"
    assert str(trial("sia", evidence_s=1e8)) == "small sia seed 1 evidence_s=1e+08"


@pytest.mark.parametrize("name", sorted(path.stem for path in NOTES.glob("*.md")))
def test_a_report_quotes_how_its_page_differs_from_the_paper_and_no_picture(name: str) -> None:
    page = (NOTES / f"{name}.md").read_text("utf-8")
    quoted = list(differences(page))
    assert bool(quoted) == (DIFFERENCES in page)
    assert not any("![" in str(part) for part in quoted)


def test_what_follows_the_differences_stays_on_the_page() -> None:
    page = f"# x\n\nbefore\n\n{DIFFERENCES}\n\nthese\n\n## Later\n\nafter\n"
    assert list(differences(page)) == [DIFFERENCES, "these"]
