"""The example of a catalogue of one's own runs as it stands on the page."""

from pathlib import Path

import pytest

from loadgen.scenarios import load_scenario
from loadgen.simulation import Engine, simulate
from schemas.events import NodeJoined
from shared.domain.audit import audit
from tests.paths import ROOT


def example() -> str:
    text = (ROOT / "docs/scenarios.md").read_text("utf-8").partition("### Models and GPUs of your own")[2]
    return text.partition("```yaml\n")[2].partition("```")[0]


@pytest.mark.parametrize("engine", ["conductor", "loop"])
def test_the_example_of_own_entries_runs_to_its_end(tmp_path: Path, engine: Engine) -> None:
    path = tmp_path / "tomorrow.yaml"
    path.write_text(example())
    ran = simulate(load_scenario(path), engine=engine)

    jobs = {job.name: job for job in ran.result.job_results}
    assert {name: job.state for name, job in jobs.items()} == {
        "small-net": "completed",
        "known-net": "completed",
    }
    assert any(node.startswith("b200") for job in jobs.values() for node in job.nodes)
    assert not audit(ran.events, drained=True, seqs=ran.seqs)
    joined = [event for event in ran.events if isinstance(event, NodeJoined)]
    assert joined
    assert all("efficientnet-b0 on imagenet" in event.workloads for event in joined)
