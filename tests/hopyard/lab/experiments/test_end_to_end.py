"""The commands, on the smallest scenario."""

import gzip
from pathlib import Path

import duckdb
import msgspec
import pytest

from hopyard.cli import main
from hopyard.commands import experiment as command
from hopyard.lab.report.document import Written
from tests.hopyard.lab.experiment_builders import SMALL


def ran(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(words)
    return int(ended.value.code or 0)


def test_a_comparison_from_the_command_to_the_report(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    scenario, out = tmp_path / "small.yaml", tmp_path / "out"
    scenario.write_text(SMALL)
    assert (
        ran(
            "compare",
            "--scenario",
            str(scenario),
            "--policies",
            "fifo",
            "--seeds",
            "1",
            "--events",
            "--out",
            str(out),
        )
        == 0
    )
    written = msgspec.json.decode((out / "figures.json").read_bytes(), type=Written)
    makespan = next(figure for figure in written.figures if figure.measure == "makespan")
    assert (makespan.arm, len(makespan.values), written.failures) == ("fifo", 1, ())
    assert "data:image/png" in (out / "report.html").read_text()
    assert [path.suffix for path in sorted((out / "runs").iterdir())] == [
        ".gz",
        ".run",
    ]  # both settings are one run
    assert "Event logs that break" not in (out / "report.md").read_text()
    with gzip.open(next((out / "runs").glob("*.gz"))) as file:
        assert [msgspec.json.decode(line)["fact"] for line in file].count("job.completed") == 2
    jobs = duckdb.read_parquet(str(out / "data" / "jobs.parquet"))
    assert len(jobs) == 4  # two jobs, two settings
    assert str(out / "report.html") in capfd.readouterr().out


def test_a_policy_that_is_not_there_is_refused_before_anything_runs(tmp_path: Path) -> None:
    assert ran("experiment", "table3", "--policies", "hops,nope", "--out", str(tmp_path)) == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("policies", ["", "hops,hops"])
@pytest.mark.parametrize("words", [("compare",), ("experiment", "table3")], ids=" ".join)
def test_no_policy_and_one_twice_are_bad_usage(words: tuple[str, ...], policies: str, tmp_path: Path) -> None:
    assert ran(*words, "--policies", policies, "--out", str(tmp_path)) == 2
    assert list(tmp_path.iterdir()) == []


def test_without_its_packages_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "NEEDED", ("no_such_package",))
    assert ran("compare") == 1
    assert capfd.readouterr().err == ("hopyard: no_such_package missing: pip install 'hopyard[lab]'\n")


LONG = {name.value for name in command.Name} - {"accuracy"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name.value, marks=[pytest.mark.benchmark] if name.value in LONG else [])
        for name in command.Name
    ],
)
def test_every_experiment_runs_to_its_report(name: str, tmp_path: Path) -> None:
    policies = {"table3", "table4", "arrival-rates"}
    words = ["--policies", "hops,fifo"] if name in policies else []
    assert ran("experiment", name, "--quick", "--out", str(tmp_path), *words) == 0
    assert (tmp_path / "report.html").stat().st_size > 20_000
