"""The commands, on the smallest scenario."""

import gzip
from pathlib import Path

import duckdb
import msgspec
import pytest

from hopyard.cli import main
from hopyard.commands import experiment as command
from hopyard.failures import Invalid
from hopyard.lab.report.document import Written
from schemas.results import RunResult
from schemas.settings import SEED_MOST
from services.planner.policies.registry import names
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
    assert sorted(path.suffix for path in (out / "runs").iterdir()) == [".gz", ".run", ".run"]
    bounded = next(figure for figure in written.figures if figure.measure == "makespan over its bound")
    assert bounded.mean >= 1.0
    report = (out / "report.md").read_text()
    assert "### How far from the possible" in report
    assert "### Where the GPU time went" in report
    assert "Event logs that break" not in (out / "report.md").read_text()
    with gzip.open(next((out / "runs").glob("*.gz"))) as file:
        assert [msgspec.json.decode(line)["fact"] for line in file].count("job.completed") == 2
    jobs = duckdb.read_parquet(str(out / "data" / "jobs.parquet"))
    assert len(jobs) == 2
    assert str(out / "report.html") in capfd.readouterr().out


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "small.yaml"
    file.write_text(SMALL)
    return file


def test_every_comparison_has_a_folder_of_its_own_and_shares_its_runs(
    scenario: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ("compare", "--scenario", str(scenario), "--seeds", "1")
    assert ran(*words, "--policies", "fifo") == 0
    assert ran(*words, "--policies", "fifo,sjf") == 0
    out, err = capfd.readouterr()
    assert "3 runs, 2 of them kept from before" in err
    reports = sorted(str(path) for path in Path("experiments/compare").glob("small-*/report.html"))
    assert len(reports) == 2
    assert sorted(line for line in out.splitlines() if line.endswith(".html")) == reports
    assert "sjf" in out
    assert "One seed has no interval" in out


def test_a_policy_outside_its_range_is_remarked_on(scenario: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ("compare", "--scenario", str(scenario), "--seeds", "1", "--policies", "fifo,hops")
    assert ran(*words, "--out", "mine") == 0
    said = " ".join(capfd.readouterr().out.split())
    assert "Out of their range:" in said
    assert "chooses GPU counts, and each of the 2 jobs lists one" in said
    assert "### Out of their range" in Path("mine/report.md").read_text()


def test_all_policies_are_those_that_are_installed_each_once() -> None:
    assert command._named("sjf,all") == ["sjf", *(name for name in names() if name != "sjf")]
    assert sorted(command._named("all")) == sorted(names())
    assert command._named("hops, gavel") == ["hops", "gavel"]
    with pytest.raises(Invalid, match="names a policy twice: all,all"):
        command._contenders("all,all")


def test_the_report_of_another_scenario_is_not_overwritten(
    scenario: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ("compare", "--policies", "fifo", "--seeds", "1", "--out", "mine", "--scenario", str(scenario))
    assert ran(*words) == 0
    before = (tmp_path / "mine" / "report.html").read_bytes()
    scenario.write_text(SMALL.replace("500000", "600000"))
    assert ran(*words) == 1
    assert "mine holds a report about other jobs or settings (small): choose another --out" in (
        capfd.readouterr().err
    )
    assert (tmp_path / "mine" / "report.html").read_bytes() == before


def test_json_is_all_that_is_printed(scenario: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert (
        ran("compare", "--scenario", str(scenario), "--policies", "fifo,sjf", "--seeds", "2", "--json") == 0
    )
    written = msgspec.json.decode(capfd.readouterr().out, type=Written)
    assert {one.measure for one in written.verdicts} >= {"makespan", "mean JCT"}


@pytest.mark.parametrize(
    "words",
    [("simulate",), ("compare", "--policies", "fifo"), ("experiment", "table3", "--quick")],
    ids=lambda words: words[0],
)
def test_a_variable_that_is_no_setting_is_refused(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOPYARD_MOVING_COST_S", "5")
    assert ran(*words) == 2
    assert "--policy hops+moving_cost_s=VALUE" in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("world", "reason"),
    [
        ("atlantis", " is unknown; there are emulated, learnt, table"),
        ("os:name", ": it cannot be called with settings and a catalogue"),
        ("os:system", ": it cannot be called with settings and a catalogue"),
        ("builtins:print", ": what it makes is not a world: it has no modes, stretch, alike, rota, switch_s"),
    ],
)
@pytest.mark.parametrize(
    "words", [("simulate",), ("compare", "--policies", "fifo")], ids=lambda words: words[0]
)
def test_an_unknown_world_is_refused(
    words: tuple[str, ...],
    world: str,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HOPYARD_WORLD", world)
    assert ran(*words) == 2
    assert f"world {world}{reason}" in capfd.readouterr().err


def test_settings_of_the_shell_hold_and_those_that_do_not_are_named(
    scenario: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"ROUND_S": "60", "NATS_URL": "nats://x", "SEED": "4"}.items():
        monkeypatch.setenv(f"HOPYARD_{name}", value)
    assert ran("simulate", "--scenario", str(scenario), "--policy", "fifo", "--json") == 0
    out, err = capfd.readouterr()
    result = msgspec.json.decode(out, type=RunResult)
    assert (result.round_s, result.seed) == (60.0, 1)
    assert "with settings of this shell: round_s=60.0\n" in err
    assert "without effect in a simulation: HOPYARD_NATS_URL, HOPYARD_SEED (--seed decides)\n" in err


@pytest.mark.parametrize("policy", ["nosuch", "hops+nosuch=3"])
def test_an_unknown_policy_of_the_scenario_is_refused_unless_another_is_named(
    policy: str, capfd: pytest.CaptureFixture[str], scenario: Path
) -> None:
    scenario.write_text(scenario.read_text() + f"settings: {{policy: {policy}}}\n")
    assert ran("simulate", "--scenario", str(scenario)) == 2
    err = capfd.readouterr().err
    assert err.startswith("hopyard: policy ")
    assert err.count("\n") == 1
    assert "nosuch" in err
    assert ran("simulate", "--scenario", str(scenario), "--policy", "fifo") == 0


def test_a_setting_that_a_comparison_overrules_is_named(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], scenario: Path
) -> None:
    monkeypatch.setenv("HOPYARD_ROUND_S", "90")
    words = ("--policies", "fifo,sjf+round_s=30", "--seeds", "1", "--scenario", str(scenario), "--json")
    assert ran("compare", *words) == 0
    assert "round_s is 30 and not 90 for sjf+round_s=30 (side by side)\n" in capfd.readouterr().err


def test_policies_take_turns_by_the_scenario_and_by_the_command(
    scenario: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    scenario.write_text(scenario.read_text() + "policies: [{at_s: 90, policy: sjf}]\n")
    later = ("--policy-at", "60:hadar+branches=1", "--policy-at", "0.5:gavel")
    assert ran("simulate", "--scenario", str(scenario), "--policy", "fifo", *later, "--json") == 0
    result = msgspec.json.decode(capfd.readouterr().out, type=RunResult)
    assert result.policy == "fifo, gavel from 0.5 s, hadar+branches=1 from 60 s, sjf from 90 s"


def test_a_policy_whose_time_never_came_is_said_to_be_one(
    scenario: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    late = ("--policy-at", "60:gavel", "--policy-at", "1e8:gavel")
    assert ran("simulate", "--scenario", str(scenario), "--policy", "fifo", *late, "--json") == 0
    result = msgspec.json.decode(capfd.readouterr().out, type=RunResult)
    assert result.policy == "fifo, gavel from 60 s, gavel from 1e+08 s (not reached)"


def test_jobs_with_fewer_gpus_than_their_trace_says_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("jobs.csv").write_text("when,n,took,what\n0,500,3,resnet18\n60,2,60,resnet18\n")
    traced = ("--trace", "jobs.csv", "--columns", "submit=when,gpus=n,seconds=took,model=what")
    assert ran("simulate", "--scenario", "tiny", "--policy", "fifo", *traced, "--json") == 0
    out, err = capfd.readouterr()
    [cut] = msgspec.json.decode(out, type=RunResult).cut
    assert (cut.number, cut.traced_gpus, cut.gpus) == (1, 500, 8)
    assert err.endswith(f"1 job with fewer GPUs than the trace says: {cut.name} (500 → 8)\n")
    assert ran("compare", "--scenario", "tiny", "--policies", "fifo", "--seeds", "1", *traced) == 0
    assert "1 of 2 jobs have fewer GPUs than the trace says" in capfd.readouterr().out


def test_a_workload_s_own_seed_holds_where_no_other_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    drawn = "arrivals: poisson, count: 2, rate_per_hour: 40, mix: short, gpu_hours_mean: 0.5"
    Path("own.yaml").write_text(f"name: own\ncluster: tiny\nworkload: {{{drawn}, seed: 7}}\n")
    words = ("--scenario", "own.yaml", "--json")

    def simulated(*seed: str) -> RunResult:
        assert ran("simulate", *words, "--policy", "fifo", *seed) == 0
        return msgspec.json.decode(capfd.readouterr().out, type=RunResult)

    own, named, other = simulated(), simulated("--seed", "7"), simulated("--seed", "1")
    assert (own.seed, own.event_log_hash) == (7, named.event_log_hash)
    assert own.event_log_hash != other.event_log_hash
    assert ran("compare", *words, "--policies", "fifo", "--seeds", "2") == 0
    assert msgspec.json.decode(capfd.readouterr().out, type=Written).about["seeds"] == "7, 8"


def test_refused_jobs_are_named_and_simulate_ends_with_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(SMALL.replace("name: second, workload: *vgg, gpus: 4", REFUSED))
    words = ("--scenario", "small.yaml", "--json")
    assert ran("simulate", *words, "--policy", "fifo") == 1
    out, err = capfd.readouterr()
    result = msgspec.json.decode(out, type=RunResult)
    assert [(job.number, job.name) for job in result.refused] == [(2, "second")]
    assert "     10s  2/2  second  refused: $.gpus: asks for at least 5 GPUs; the cluster has 4\n" in err
    assert "1 of 2 jobs were refused; figures are about the others" in err
    assert ran("compare", *words, "--policies", "fifo", "--seeds", "1", "--out", "out") == 0
    report = Path("out/report.md").read_text()
    assert "- `small seed 1: second at 10 s: $.gpus: asks for at least 5 GPUs; the cluster has 4`" in report
    assert "- **fifo**: 1 of 2 jobs were refused; figures are about the others" in report
    assert "There is no bound: jobs were refused." in report


REFUSED = "name: second, workload: *vgg, gpus: 5"


def test_a_run_in_which_a_job_fails_is_not_said_to_be_below_the_bound_of_all_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The long job fails at its limit; the other one's completion time is far below the mean of both."""
    monkeypatch.chdir(tmp_path)
    long = "gpus: 2, samples: 500000000, time_limit: 60"
    Path("small.yaml").write_text(SMALL.replace("gpus: 4, samples: 500000", long))
    words = ("--scenario", "small.yaml", "--policies", "fifo", "--seeds", "1", "--out", "out")
    assert ran("compare", *words) == 0
    assert "× bound" not in capfd.readouterr().out
    report = Path("out/report.md").read_text()
    assert "There is no bound: jobs did not complete." in report
    assert "1 of 2 jobs failed; figures are about the others" in report


def test_a_result_has_every_job(scenario: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert ran("simulate", "--scenario", str(scenario), "--policy", "fifo", "--json") == 0
    first, second = msgspec.json.decode(capfd.readouterr().out, type=RunResult).job_results
    assert (first.name, first.model, first.state, first.nodes) == (
        "first", "vgg11", "completed", ("titan-xp-0",),
    )  # fmt: skip
    assert first.ended_at is not None
    assert first.jct_s == first.ended_at - first.submitted_at
    assert second.started_at is not None
    assert second.started_at >= first.ended_at  # it needs all GPUs
    assert (second.placements, second.restarts) == (1, 0)


def test_a_policy_that_is_not_there_is_refused_before_anything_runs(tmp_path: Path) -> None:
    assert ran("experiment", "table3", "--policies", "hops,nope", "--out", str(tmp_path)) == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("policies", ["", "hops,hops"])
@pytest.mark.parametrize("words", [("compare",), ("experiment", "table3")], ids=" ".join)
def test_no_policy_and_one_twice_are_bad_usage(words: tuple[str, ...], policies: str, tmp_path: Path) -> None:
    assert ran(*words, "--policies", policies, "--out", str(tmp_path)) == 2
    assert list(tmp_path.iterdir()) == []


def test_seeds_that_a_run_cannot_have_are_refused_before_anything_runs(
    scenario: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    workload = f"{{arrivals: poisson, count: 1, mix: short, seed: {SEED_MOST}}}"
    scenario.write_text(f"name: last\ncluster: tiny\nworkload: {workload}")
    assert ran("compare", "--scenario", str(scenario), "--policies", "fifo", "--seeds", "2") == 2
    assert f"--seeds 2: the last would be above {SEED_MOST}" in capfd.readouterr().err


LONG = {name.value for name in command.Name} - {"accuracy"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name.value, marks=pytest.mark.benchmark if name.value in LONG else pytest.mark.slow)
        for name in command.Name
    ],
)
def test_every_experiment_runs_to_its_report(name: str, tmp_path: Path) -> None:
    policies = {"table3", "table4", "arrival-rates"}
    words = ["--policies", "hops,fifo"] if name in policies else []
    assert ran("experiment", name, "--quick", "--out", str(tmp_path), *words) == 0
    assert (tmp_path / "report.html").stat().st_size > 20_000
