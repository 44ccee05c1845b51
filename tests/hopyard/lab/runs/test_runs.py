"""Trials in processes of their own: what is kept, what is made again, what is said of a failure."""

import asyncio
import io
import resource
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hopyard.failures import Failure
from hopyard.lab.experiments.options import scenario_hash
from hopyard.lab.experiments.suite import (
    DIFFERENCES,
    EXPERIMENTS,
    NOTES,
    Experiment,
    Plan,
    differences,
    perform,
)
from hopyard.lab.runs.cache import SUFFIX, digest_of, keep, kept_at, name_of, policy_digest
from hopyard.lab.runs.cases import Case
from hopyard.lab.runs.pool import MAKING, TrialPool, TrialRun, _scratch
from hopyard.lab.runs.trials import Simulated, Simulation, StoredOutcome, Trial
from hopyard.show.ticker import ERASE, Ticker
from loadgen.effective_settings import effective_settings
from schemas.scenarios import PolicyChange, TraceWorkload
from tests.hopyard.lab.experiment_builders import Terminal, options, outcome, silent, trial

POLICIES = NOTES.parent / "policies"
"""of no paper, so with a policy's page: what our own gains"""


def keep_made_up(folder: Path, one: Trial) -> Path:
    path = folder / (name_of(one) + SUFFIX)
    keep(path, StoredOutcome(trial=one, outcome=outcome("made-up"), wall_s=1.0))
    return path


def test_the_name_changes_with_every_input_of_the_outcome() -> None:
    names = {name_of(one) for one in (trial(), trial("hops"), trial(seed=2), trial(gap=0.1), trial(gap=0.2))}
    assert len(names) == 5
    assert name_of(trial(gap=0.1)) in names


def test_a_name_is_one_for_a_file_however_long_a_policy_is(tmp_path: Path) -> None:
    """A policy in a deep folder, or with many options. What tells two of them apart may be at any place."""
    long = "".join(f"{folder:050}/" for folder in range(7))
    names = [keep_made_up(tmp_path, trial(f"/{letter}{long}mine.py:Mine")).name for letter in "ab"]
    assert len(set(names)) == 2


def test_the_name_changes_with_every_setting_of_the_shell() -> None:
    """What a kept outcome was made with is part of what it is called."""
    found = set()
    for environ in ({}, {"HOPYARD_ROUND_S": "60"}, {"HOPYARD_ROUND_S": "90"}, {"HOPYARD_GAP": "0.2"}):
        scenario = effective_settings(trial().scenario, environ).scenario
        found.add(name_of(msgspec.structs.replace(trial(), scenario=scenario)))
    assert len(found) == 4


def test_a_run_says_how_far_it_is(tmp_path: Path) -> None:
    """The shares come from the process that simulates, and the line is rewritten on a terminal."""
    out = Terminal()
    asyncio.run(TrialPool(tmp_path, 1, Ticker(out)).run([trial()]))
    shown = [line for line in out.getvalue().split(ERASE) if "under way" in line]
    assert shown[0] == "0 of 1 runs done, 1 under way, 0%"
    assert out.getvalue().endswith(ERASE)


LOUD = """
import os

from services.planner.policies.classical.fifo import Fifo


class Loud(Fifo):
    def wants(self, view):
        os.chdir("/")
        print("nan\\n9\\n" + 200_000 * "x", flush=True)
        return super().wants(view)
"""


def test_a_policy_that_prints_anything_and_changes_the_folder_is_run_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("loud.py").write_text(LOUD)
    out = Terminal()
    [ran] = asyncio.run(TrialPool(Path("runs"), 1, Ticker(out)).run([trial(str(tmp_path / "loud.py:Loud"))]))
    assert (ran.failure, type(ran.outcome)) == ("", Simulated)
    assert "nan%" not in out.getvalue()
    assert "900%" not in out.getvalue()


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


@pytest.mark.parametrize(
    ("file", "changed"),
    [
        ("store.jsonl", {"settings": {"world": "learnt", "learnt_from": "store.jsonl"}}),
        ("own.yaml", {"settings": {"catalogue": "own.yaml"}}),
        ("world.py", {"settings": {"world": "world.py:World"}}),
        ("policy.py", {"policies": [PolicyChange(at_s=9.0, policy="policy.py:Mine+eager=true")]}),
    ],
)
def test_names_of_runs_and_scenarios_change_with_every_file_that_a_scenario_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, changed: dict[str, Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    scenario = msgspec.structs.replace(trial().scenario, **changed)
    one = Simulation(scenario=scenario, policy="fifo", seed=1)
    names, hashes = set(), set()
    for text in ("a = 1", "a = 2"):
        Path(file).write_text(text)
        names.add(name_of(one))
        hashes.add(scenario_hash(scenario))
    assert (len(names), len(hashes)) == (2, 2)


def test_the_name_changes_with_a_catalogue_that_only_this_run_has(tmp_path: Path) -> None:
    catalogue = tmp_path / "own.yaml"
    names = set()
    for text in ("a", "b"):
        catalogue.write_text(text)
        names.add(name_of(trial(catalogue=str(catalogue))))
    assert len(names) == 2


def test_the_digest_changes_only_with_sources_below_the_folder(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "policy.py").write_text("1")
    first = digest_of(tmp_path)
    (inner / "notes.txt").write_text("a")
    assert digest_of(tmp_path) == first
    (inner / "policy.py").write_text("2")
    second = digest_of(tmp_path)
    (inner / "table.yaml").write_text("3")
    assert len({first, second, digest_of(tmp_path)}) == 3


def test_the_name_changes_with_any_module_of_a_policy_from_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("before", "after"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
        (tmp_path / package / "policy.py").write_text("from .rule import rule")
    (tmp_path / "after" / "rule.py").write_text("rule = 2")
    monkeypatch.syspath_prepend(tmp_path)
    assert policy_digest("before.policy:rule") != policy_digest("after.policy:rule")


def test_a_damaged_outcome_is_not_read(tmp_path: Path) -> None:
    path = keep_made_up(tmp_path, trial())
    path.write_bytes(path.read_bytes()[:-10])
    assert kept_at(path) is None


def test_a_kept_outcome_is_not_run_again_and_a_failure_is_reported(tmp_path: Path) -> None:
    kept, fails = trial(), trial(no_such_setting=1)
    keep_made_up(tmp_path, kept)
    said = io.StringIO()
    runs = asyncio.run(TrialPool(tmp_path, 2, Ticker(said)).run([kept, fails]))
    assert runs[0].outcome == outcome("made-up")
    assert runs[1].outcome is None
    assert "no_such_setting" in runs[1].failure
    first, second = said.getvalue().splitlines()
    assert first == "2 runs, 1 of them kept from before"
    assert second.startswith("[1/1] small fifo seed 1 no_such_setting=1 failed: ")


def test_an_interrupted_experiment_goes_on_where_it_stopped(tmp_path: Path) -> None:
    trials = [trial(), trial(seed=2)]
    first = tmp_path / (name_of(trials[0]) + SUFFIX)
    said = io.StringIO()

    async def interrupted() -> None:
        task = asyncio.create_task(TrialPool(tmp_path, 1, silent()).run(trials))
        while not first.exists():
            assert not task.done()
            await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(interrupted())
    made_at = first.stat().st_mtime_ns
    runs = asyncio.run(TrialPool(tmp_path, 1, Ticker(said)).run(trials))
    assert [run.outcome is not None for run in runs] == [True, True]
    assert first.stat().st_mtime_ns == made_at
    done = [line.partition(" took")[0] for line in said.getvalue().splitlines() if " took" in line]
    assert done == ["[1/1] small fifo seed 2"]


def test_pools_that_make_the_same_runs_at_once_do_not_meet(tmp_path: Path) -> None:
    """Without --out all comparisons share a folder, and another terminal may compare some of the same."""
    trials = [trial(seed=seed) for seed in range(1, 4)]
    half = tmp_path / f"{name_of(trials[0])}.ndjson"
    half.write_text("written by an earlier version that still runs")

    async def all_at_once() -> list[list[TrialRun]]:
        pools = [TrialPool(tmp_path, 1, silent(), events=True) for _ in range(4)]
        return await asyncio.gather(*(pool.run(trials) for pool in pools))

    for runs in asyncio.run(all_at_once()):
        assert [(run.failure, type(run.outcome)) for run in runs] == [("", Simulated)] * 3
    assert half.read_text().startswith("written")
    half.unlink()
    assert sorted(file.suffix for file in tmp_path.iterdir()) == [".gz"] * 3 + [".run"] * 3


def test_what_a_killed_pool_had_begun_is_deleted_by_the_next(tmp_path: Path) -> None:
    """No clean-up runs where a process is killed, and an event log may have a gigabyte."""
    left = tmp_path / f"{MAKING}left"
    left.mkdir()
    (left / "half.ndjson").write_text("{")
    with _scratch(tmp_path) as used:
        asyncio.run(TrialPool(tmp_path, 1, silent()).run([trial()]))
        assert [*tmp_path.glob(f"{MAKING}*")] == [used]
    assert [file.suffix for file in tmp_path.iterdir()] == [SUFFIX]


def test_where_all_runs_are_kept_nothing_is_written(tmp_path: Path) -> None:
    """Their folder may be of a disk that is mounted to be read only."""
    keep_made_up(tmp_path, trial())
    before = tmp_path.stat().st_mtime_ns
    asyncio.run(TrialPool(tmp_path, 1, silent()).run([trial()]))
    assert tmp_path.stat().st_mtime_ns == before


def test_a_run_whose_event_log_is_not_written_whole_fails_and_leaves_nothing(tmp_path: Path) -> None:
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, usual[1]))
    try:
        [run] = asyncio.run(TrialPool(tmp_path, 1, silent(), events=True).run([trial()]))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert "File too large" in run.failure
    assert ".ndjson.gz" in run.failure
    assert not [*tmp_path.iterdir()]


def test_an_outcome_that_cannot_be_kept_ends_all_with_an_error_that_names_its_file(tmp_path: Path) -> None:
    """Not with a group of errors, of which a command would show the traceback."""
    place = tmp_path / (name_of(trial()) + SUFFIX)
    place.mkdir()
    with pytest.raises(IsADirectoryError, match=place.name):
        asyncio.run(TrialPool(tmp_path, 1, silent()).run([trial()]))


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
            report=EXPERIMENTS["table3"].report,
        ),
        options=options(),
        out=tmp_path,
        runs=tmp_path / "runs",
        workers=1,
        events=False,
        about={},
    )
    with pytest.raises(Failure, match="runs that failed: 1"):
        perform(plan, silent())
    report = (tmp_path / "report.md").read_text()
    assert "- `small fifo seed 1 no_such_setting=1: ended with 1" in report
    assert "| **fifo** | 2 |" in report


def test_a_trial_reads_like_a_line() -> None:
    assert isinstance(trial(), Simulation)
    assert str(trial("hops", 3, gap=0.1)) == "small hops seed 3 gap=0.1"
    assert str(trial("sia", evidence_s=1e8)) == "small sia seed 1 evidence_s=1e+08"


def test_every_experiment_has_its_page() -> None:
    pages = {path.name for folder in (NOTES, POLICIES) for path in folder.glob("*.md")}
    assert {f"{name}.md" for name in EXPERIMENTS} <= pages


@pytest.mark.parametrize("name", sorted(path.stem for path in NOTES.glob("*.md")))
def test_a_report_quotes_how_its_page_differs_from_the_paper_and_no_picture(name: str) -> None:
    page = (NOTES / f"{name}.md").read_text("utf-8")
    quoted = list(differences(page))
    assert bool(quoted) == (DIFFERENCES in page)
    assert not any("![" in str(part) for part in quoted)


def test_sections_after_the_differences_are_not_quoted() -> None:
    page = f"# x\n\nbefore\n\n{DIFFERENCES}\n\nthese\n\n## Later\n\nafter\n"
    assert list(differences(page)) == [DIFFERENCES, "these"]


def test_quoted_text_has_no_links_to_files_of_the_page() -> None:
    page = f"{DIFFERENCES}\n\nit is in [table4](table4.md), and [there](https://example.org)\n"
    assert list(differences(page))[1] == "it is in table4, and [there](https://example.org)"
