"""A run whose facts go on as they come is the run that keeps them."""

from pathlib import Path

from loadgen.scenarios import load_scenario
from loadgen.simulation import simulate, simulate_streaming
from shared.runtime.bus.contract import Record
from tests.paths import ROOT
from tests.simulation.storms import SMALL


def test_a_streamed_run_gives_the_same_result() -> None:
    heard: list[Record] = []
    streamed, kept = simulate_streaming(SMALL, heard.append), simulate(SMALL)
    assert [record.event for record in heard] == kept.events
    assert [record.seq for record in heard] == kept.seqs
    assert streamed.event_log_hash == kept.result.event_log_hash
    assert (streamed.metrics, streamed.jobs) == (kept.result.metrics, kept.result.jobs)


def test_the_example_of_a_whole_trace_runs_on_its_cluster(tmp_path: Path) -> None:
    example = (ROOT / "docs" / "examples" / "philly.yaml").read_text()
    (tmp_path / "philly.yaml").write_text(example)
    rows = [f"2017-10-09 07:0{minute}:00,{60 * minute + 30}.0,{gpus}" for minute, gpus in ((1, 1), (2, 16))]
    (tmp_path / "philly.csv").write_text("\n".join(["timestamp,duration,num_gpus", *rows]))
    scenario = load_scenario(tmp_path / "philly.yaml")
    result = simulate_streaming(scenario, lambda _: None, overrides={"round_s": 60.0})
    assert result.jobs == {"submitted": 2, "completed": 2}
    assert result.policy == "tiresias"
