"""Copies of a job on real processes: each trains its share alone, and what comes of them is one job again."""

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import pytest

from tests.hopjob.agent import SCRIPTS, Agent, Rank, go, kill, stop
from tests.paths import ROOT
from tests.torch_python import torch_python

pytestmark = pytest.mark.torch

CONVERGES = SCRIPTS / "converges.py"
SAMPLES = 30 * 4096
ENDLESS = 1e9
DEFAULTS: dict[str, Any] = {"HOPJOB_SAMPLES": ENDLESS, "SEED": 1}
LOST = 75
STATES = """
import json, sys, torch
from pathlib import Path
from hopjob.state.plain import unpacked
for name in sys.argv[1:]:
    state = unpacked(torch.load(name, weights_only=True))
    model = {key: value.double().flatten().tolist() for key, value in state["model"].items()}
    steps = [float(one["step"]) for one in state["optimizer"]["state"].values()]
    print(json.dumps({"model": model, "samples": state["samples"], "steps": steps}))
"""
State = dict[str, Any]


class Nodes:
    """An agent on each of some nodes, which share a folder for checkpoints."""

    def __init__(self, folder: Path, names: str) -> None:
        self.checkpoints = folder / "checkpoints"
        self.agents = {name: Agent(folder / name) for name in names}
        for name in names:
            (folder / name).mkdir()
        self._open = ExitStack()

    def __enter__(self) -> Self:
        for agent in self.agents.values():
            self._open.enter_context(agent)
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def start(self, until: Mapping[str, float], script: Path = CONVERGES, **environment: Any) -> list[Rank]:  # noqa: ANN401
        """A new placement, not begun: copies that train until the job has so many samples, by node.

        It has one name on all nodes.
        """
        begun = max(agent.placements for agent in self.agents.values())
        for agent in self.agents.values():
            agent.placements = begun
        return [
            self.agents[node].start(
                script,
                HOPJOB_NODE=node,
                HOPJOB_UNTIL=samples,
                HOPJOB_CHECKPOINTS=self.checkpoints,
                **{key: value for key, value in (DEFAULTS | environment).items() if value is not None},
            )[0]
            for node, samples in until.items()
        ]

    def run(self, until: Mapping[str, float], **environment: Any) -> list[Rank]:  # noqa: ANN401
        """Each up, and sent to go once all are."""
        copies = self.start(until, **environment)
        for copy in copies:
            copy.wait_for("up")
        for copy in copies:
            go([copy])
        return copies

    def files(self, pattern: str) -> list[Path]:
        return sorted(self.checkpoints.glob(pattern))


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with Nodes(tmp_path, "ab") as two:
        yield two


def states(*files: Path) -> list[State]:
    command = [str(torch_python()), "-c", STATES, *map(str, files)]
    made = subprocess.run(command, check=True, capture_output=True, cwd=ROOT, text=True)
    return [json.loads(line) for line in made.stdout.splitlines()]


def ended(copies: list[Rank]) -> list[float]:
    """What each had done, all of it well."""
    assert [copy.end() for copy in copies] == [0] * len(copies), [copy.output() for copy in copies]
    return [copy.last_word()["completed"]["samples"] for copy in copies]


@pytest.mark.parametrize(("merge", "weights"), [("weighted", (0.75, 0.25)), ("plain", (0.5, 0.5))])
def test_weights_are_averaged_by_the_samples_that_each_copy_did(
    nodes: Nodes, merge: str, weights: tuple[float, float]
) -> None:
    first = nodes.run({"a": 960.0, "b": 320.0})
    assert ended(first) == [960.0, 320.0]
    one, other = states(*nodes.files("copies/p1/*/*/*.pt"))
    second = nodes.start({"a": 1600.0, "b": 1600.0}, HOPJOB_MERGE=merge)
    assert [copy.wait_for("up")["samples"] for copy in second] == [1280.0, 1280.0]
    merged = states(*nodes.files("*1280-*.pt"))[0]
    assert merged["samples"] == 1280
    for name in ("0.weight", "1.running_var", "3.bias"):
        pairs = zip(one["model"][name], other["model"][name], strict=True)
        means = [weights[0] * mine + weights[1] * theirs for mine, theirs in pairs]
        assert merged["model"][name] == pytest.approx(means, rel=1e-5, abs=1e-6)
    for copy in second:
        go([copy])
    assert ended(second) == [1600.0, 1600.0]
    own, others = states(*nodes.files("copies/p2/*/*/*.pt"))
    assert set(own["steps"]) == {40}  # its own optimizer: 30 updates before, 10 now
    assert set(others["steps"]) == {20}


def test_copies_begin_with_one_model_and_draw_samples_of_their_own(
    nodes: Nodes,
) -> None:
    copies = nodes.run({"a": 320.0, "b": 320.0}, SEED=None)
    assert ended(copies) == [320.0, 320.0]
    began = {re.findall(r"^begins (\S+)$", copy.output(), re.MULTILINE)[0] for copy in copies}
    assert len(began) == 1
    one, other = states(*nodes.files("copies/p1/*/*/*.pt"))
    assert one["model"]["0.weight"] != other["model"]["0.weight"]
    assert not any("held out" in copy.output() for copy in copies)  # the job is not done


def test_at_the_end_one_copy_goes_on_with_the_merged_model(nodes: Nodes) -> None:
    """What follows the training in the script runs once, on the merged model."""
    copies = nodes.run({"a": 640.0, "b": 320.0}, HOPJOB_SAMPLES=960)
    assert ended(copies) == [640.0, 320.0]
    assert sum("held out" in copy.output() for copy in copies) == 1
    [merged] = nodes.files("*.pt")[-1:]
    assert states(merged)[0]["samples"] == 960


def test_a_killed_copy_loses_its_work_since_its_checkpoint(nodes: Nodes) -> None:
    copies = nodes.run({"a": 640.0, "b": ENDLESS}, HOPJOB_CHECKPOINT_INTERVAL_S=0.2)
    saved = copies[1].wait_for("saved", 2)["samples"]
    kill(copies[1:])
    newest = max(int(path.name.partition("-")[0]) for path in nodes.files("copies/p1/b/*/*.pt"))
    assert newest >= saved
    assert ended(copies[:1]) == [640.0]
    [rank] = nodes.start({"a": ENDLESS})
    assert rank.wait_for("up")["samples"] == 640 + newest
    assert stop([rank]) == [0]


def test_a_damaged_file_of_a_copy_is_passed_over_for_its_older_one(nodes: Nodes) -> None:
    copies = nodes.run({"a": 640.0, "b": ENDLESS}, HOPJOB_CHECKPOINT_INTERVAL_S=0.2)
    copies[1].wait_for("saved", 2)
    assert stop(copies[1:]) == [0]
    ended(copies[:1])
    older, newest = nodes.files("copies/p1/b/*/*.pt")
    newest.write_bytes(newest.read_bytes()[:-100])
    [rank] = nodes.start({"a": ENDLESS})
    assert rank.wait_for("up")["samples"] == 640 + int(older.name.partition("-")[0])
    assert rank.said("damaged")[0]["file"] == str(newest)
    assert stop([rank]) == [0]


def test_a_merge_that_was_cut_short_is_made_again(nodes: Nodes) -> None:
    """Half of the merged file is there, under the names that its writers have."""
    ended(nodes.run({"a": 640.0, "b": 320.0}))
    [rank] = nodes.start({"a": ENDLESS})
    rank.wait_for("up")
    kill([rank])
    [merged] = nodes.files("*960-*.pt")
    whole = merged.read_bytes()
    merged.rename(merged.with_name(f"{960:015d}-3610a686.part"))
    merged.with_name(f"{960:015d}-3610a686.part").write_bytes(whole[: len(whole) // 2])
    copies = nodes.start({"a": ENDLESS, "b": ENDLESS})
    assert [copy.wait_for("up")["samples"] for copy in copies] == [960.0, 960.0]
    stop(copies)
    assert {path.read_bytes() for path in nodes.files("*960-*.pt")} == {whole}


def test_a_gang_in_lockstep_goes_on_from_merged_copies(nodes: Nodes) -> None:
    ended(nodes.run({"a": 640.0, "b": 320.0}))
    agent = nodes.agents["a"]
    ranks = agent.run(CONVERGES, 2, HOPJOB_CHECKPOINTS=nodes.checkpoints, HOPJOB_SAMPLES=1600, SEED=1)
    assert ranks[0].said("up")[0]["samples"] == 960.0
    assert [rank.end() for rank in ranks] == [0, 0], ranks[0].output()
    assert not nodes.files("copies/p1")


def test_a_copy_of_an_older_placement_may_write_no_more(nodes: Nodes) -> None:
    [old] = nodes.run({"a": ENDLESS}, HOPJOB_CHECKPOINT_INTERVAL_S=0.2)
    old.wait_for("saved")
    [new] = nodes.start({"b": ENDLESS})
    new.wait_for("up")
    assert old.end() == LOST
    assert "belong to p2" in old.last_word()["lost"]["reason"]
    assert stop([new]) == [0]


def test_copies_train_as_well_as_one_node_alone(nodes: Nodes, tmp_path: Path) -> None:
    """Thirty epochs alone, from three seeds; and by two copies in three rounds."""
    (tmp_path / "alone").mkdir()
    with Agent(tmp_path / "alone") as agent:
        for seed in (1, 2, 3):
            folder = tmp_path / "alone" / f"of-{seed}"
            [rank] = agent.run(CONVERGES, SEED=seed, HOPJOB_SAMPLES=SAMPLES, HOPJOB_CHECKPOINTS=folder)
            assert rank.end() == 0, rank.output()
        alone = [held_out(rank) for rank in agent.ranks.values()]
    done = 0
    for _ in range(3):
        until = {"a": done + SAMPLES / 6, "b": done + SAMPLES / 6}
        copies = nodes.run(until, HOPJOB_SAMPLES=SAMPLES)
        ended(copies)
        done += SAMPLES // 3
    [last] = [copy for copy in copies if "held out" in copy.output()]
    assert held_out(last) < 1.15 * max(alone)


def held_out(rank: Rank) -> float:
    return float(re.findall(r"^held out (\S+)$", rank.output(), re.MULTILINE)[0])
