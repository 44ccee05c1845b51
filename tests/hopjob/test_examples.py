"""The examples that the documentation points to: each is profiled, stopped, and resumed by two ranks."""

import re
from pathlib import Path

import pytest

from schemas.jobs import JobFile
from shared.runtime.files import read_file
from tests.hopjob.agent import Agent, stop
from tests.paths import ROOT

pytestmark = pytest.mark.torch

EXAMPLES = ROOT / "docs" / "examples" / "jobs"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py"))
MODES_OF = {
    **{name: [] for name in NAMES},
    "huggingface": ["forked", "lockstep"],
    "lightning_module": ["forked", "lockstep"],
}
"""found in profiling; none: any"""
LOSS = re.compile(r"loss\W+(\d+\.\d+)")


def job(name: str) -> JobFile:
    return read_file(EXAMPLES / f"{name}.yaml", JobFile)


@pytest.mark.parametrize("name", NAMES)
def test_an_example_goes_from_one_rank_to_two(tmp_path: Path, name: str) -> None:
    example = job(name)
    assert example.command == f"python {name}.py"
    batch = example.workload.batch_size
    assert example.epochs is not None
    assert example.workload.dataset_samples is not None
    whole = example.epochs * example.workload.dataset_samples
    with Agent(tmp_path) as agent:
        [rank] = agent.run(EXAMPLES / f"{name}.py", HOPJOB_SAMPLES=50 * whole, HOPJOB_BATCH_SIZE=batch)
        assert rank.said("up")[0]["elastic"]
        assert rank.wait_for("observed")["batch"] == batch
        assert stop([rank]) == [0], rank.output()
        done = rank.said("stopped")[0]["samples"]
        assert done > 0
        further = done + 4 * example.workload.dataset_samples
        ranks = agent.run(EXAMPLES / f"{name}.py", 2, HOPJOB_SAMPLES=further, HOPJOB_BATCH_SIZE=batch)
        assert [one.end() for one in ranks] == [0, 0], ranks[0].output()
        assert ranks[0].said("up")[0]["samples"] == done
        assert further <= ranks[0].said("completed")[0]["samples"] <= further + 2 * 4 * batch
        losses = [float(loss) for loss in LOSS.findall(rank.output() + ranks[0].output())]
        assert losses[-1] < losses[0] or losses[-1] < 0.1


def test_lightning_trains_the_ordered_samples_beyond_its_own_limit(tmp_path: Path) -> None:
    """Lightning ended at `max_epochs`, and the job was complete with a part of its samples."""
    example = job("lightning_module")
    assert example.epochs is not None
    assert example.workload.dataset_samples is not None
    further = (example.epochs + 2) * example.workload.dataset_samples
    with Agent(tmp_path) as agent:
        [rank] = agent.run(EXAMPLES / "lightning_module.py", HOPJOB_SAMPLES=further)
        assert rank.end() == 0, rank.output()
        assert rank.said("completed")[0]["samples"] >= further


def test_a_trainer_that_a_shell_starts_completes(tmp_path: Path) -> None:
    """A job said nothing at its end, was taken for interrupted, and trained on and on."""
    with Agent(tmp_path) as agent:
        [rank] = agent.start(EXAMPLES / "lightning_module.py", launched=False, HOPJOB_SAMPLES=64)
        assert rank.end() == 0, rank.output()
        assert rank.last_word()["completed"]["samples"] >= 64


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_profiled(tmp_path: Path, name: str) -> None:
    with Agent(tmp_path) as agent:
        [rank] = agent.start(EXAMPLES / f"{name}.py", HOPJOB_PROFILE=10)
        assert rank.end() == 0, rank.output()
        profiled = rank.said("profiled")[0]
        assert len(profiled["iteration_s"]) == 10
        assert profiled["modes"] == MODES_OF[name]
        assert min(map(min, (profiled["forward_s"], profiled["backward_s"], profiled["iteration_s"]))) > 0


@pytest.mark.parametrize(
    "imports", ["from hopjob import lightning as elastic", "import hopjob, hopjob.lightning as elastic"]
)
def test_a_callback_may_be_imported_in_any_way(tmp_path: Path, imports: str) -> None:
    """Ranks waited for each other before they had said that they were up."""
    text = (EXAMPLES / "lightning_module.py").read_text()
    text = text.replace("from hopjob.lightning import LightningCallback", imports)
    (tmp_path / "script.py").write_text(text.replace("LightningCallback()", "elastic.LightningCallback()"))
    with Agent(tmp_path) as agent:
        ranks = agent.run("script.py", 2, HOPJOB_SAMPLES=640, HOPJOB_BATCH_SIZE=32)
        assert [rank.end() for rank in ranks] == [0, 0], ranks[0].output()
