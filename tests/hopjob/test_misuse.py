"""What a script does wrong: it gets a sentence, and its agent the truth."""

from pathlib import Path
from typing import Any

import pytest

from tests.hopjob.agent import Agent, go

pytestmark = pytest.mark.torch

SCRIPT = """
import hopjob, os, signal, sys, torch
from torch.utils.data import DataLoader, TensorDataset

model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.ones(64, 2)), batch_size=8)
if "built_with" in os.environ:
    torch.version.cuda = os.environ["built_with"] or None
job = hopjob.attach(model, optimizer, accumulate=float(os.environ.get("accumulate", 1)))
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
what = loader if "list" not in os.environ else [torch.ones(8, 2)]
for number, (batch,) in enumerate(job.batches(what, epochs=float(os.environ.get("epochs", 1)))):
    job.model(batch).sum().backward()
    optimizer.step()
    if number + 1 == int(os.environ.get("break", 0)):
        break
    if number + 1 == int(os.environ.get("signal", 0)):
        job._process.connection.ask_to_stop()  # as when the agent's line is read first
        os.kill(os.getpid(), signal.SIGTERM)
"""


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"accumulate": 0}, "ValueError: attach: accumulate=0.0: an update needs a whole number of batches"),
        ({"accumulate": 1.5}, "ValueError: attach: accumulate=1.5: an update"),
        ({"epochs": "nan"}, "ValueError: batches: epochs=nan is no number of epochs"),
        ({"epochs": -1}, "ValueError: batches: epochs=-1.0 is no"),
        ({"list": 1}, "samples are dealt from a DataLoader of torch, and not from a list"),
    ],
)
def test_a_wrong_argument_is_named(tmp_path: Path, wrong: dict[str, Any], says: str) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    with Agent(tmp_path) as agent:
        [rank] = agent.start("train.py", HOPJOB_SAMPLES=640, **wrong)
        if "accumulate" not in wrong:
            go([rank])
        assert rank.end() == 1
        assert says in rank.last_word()["failed"]["reason"]


def test_a_script_that_leaves_its_loop_is_complete_and_its_output_says_how_far_it_came(
    tmp_path: Path,
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    with Agent(tmp_path) as agent:
        [rank] = agent.run("train.py", HOPJOB_SAMPLES=640, **{"break": 3})
        assert rank.end() == 0
        assert rank.last_word() == {"completed": {"samples": 24.0}}
        assert "the script ended by itself after 24 of 640 samples" in rank.output()
        [rank] = agent.run("train.py", HOPJOB_SAMPLES=64)
        assert rank.end() == 0
        assert rank.output() == ""


def test_a_loop_of_the_scripts_own_over_epochs_is_pointed_out_once(tmp_path: Path) -> None:
    """Without an agent, `epochs` of the first loop are all that is trained."""
    of_epochs = "".join(f"    {line}\n" for line in SCRIPT.partition("for number")[2].splitlines())
    script = f"{SCRIPT.partition('for number')[0]}for _ in range(3):\n    for number{of_epochs[4:]}"
    (tmp_path / "train.py").write_text(script)
    with Agent(tmp_path) as agent:
        [rank] = agent.run("train.py", HOPJOB_SAMPLES=64)
        assert rank.end() == 0, rank.output()
        assert rank.output().count("job.batches is the loop over all epochs, and these are done") == 1
        assert "train.py:" in rank.output()


def test_a_script_that_ends_by_a_handler_of_its_own_stopped_as_ordered(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    with Agent(tmp_path) as agent:
        [rank] = agent.run("train.py", HOPJOB_SAMPLES=640, signal=3)
        assert rank.end() == 0
        assert rank.last_word() == {"stopped": {"samples": 0.0}}
        assert "no checkpoint" in rank.output()


@pytest.mark.parametrize(
    ("built_with", "code", "word", "says"),
    [
        (
            "",
            1,
            "failed",
            "can use none of the job's GPUs (CUDA_VISIBLE_DEVICES=GPU-1): it was built without",
        ),
        ("12.4", 75, "lost", "can use none of the job's GPUs (CUDA_VISIBLE_DEVICES=GPU-1)"),
    ],
)
def test_a_torch_that_cannot_use_the_gpu_does_not_train_on_the_cpu(
    tmp_path: Path, built_with: str, code: int, word: str, says: str
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    with Agent(tmp_path) as agent:
        [rank] = agent.run("train.py", CUDA_VISIBLE_DEVICES="GPU-1", built_with=built_with)
        assert rank.end() == code, rank.output()
        assert says in rank.last_word()[word]["reason"]
