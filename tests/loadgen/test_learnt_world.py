"""The world that is what a store has learnt."""

from pathlib import Path

import msgspec
import pytest

from loadgen.world import LearntWorld
from schemas.archive import VERSION, Header, encoded
from schemas.calibration import Ring
from schemas.placement import Gang, Proportional
from schemas.questions import ExportStore
from schemas.settings import Settings
from services.agent.work.world import DoesNotFit
from services.estimator.recall import Recall, recalled
from services.estimator.store.archive import page
from services.estimator.store.memory_store import MemoryStore
from shared.runtime.files import InvalidFile
from shared.runtime.plugins import WORLDS
from tests.services.estimator.estimator_builders import GIGA, modules, node, observed, spec, workload

HERE = node("a0", gpus=8)


def store() -> MemoryStore:
    """A second an iteration of 100 samples on type A; on a0, one GPU did 50 samples/s."""
    made = MemoryStore(half_life_s=1e9)
    made.keep(workload(), {HERE.gpu_type: modules()})
    made.add([observed("a0", throughput=50.0)])
    return made


def export(folder: Path) -> Path:
    file = folder / "lab.jsonl"
    lines = [encoded(Header(version=2)), *page(store(), ExportStore()).lines]
    file.write_bytes(b"\n".join(lines) + b"\n")
    return file


def rate(world: LearntWorld, gang: dict[str, int]) -> float:
    nodes = [node(name, gpus=8) for name in gang]
    members = Gang.of({one.node_id: gang[one.node_id] for one in nodes})
    return world.stretch(spec(), nodes, members, key="p", index=0).throughput


def test_observations_win_over_theory() -> None:
    world = LearntWorld(Recall(store()), seed=1)
    assert rate(world, {"a0": 1}) == pytest.approx(50.0)
    assert 2 * 50.0 < rate(world, {"a0": 2}) < 2 * 100.0  # theory: 1 s an iteration, and what one GPU showed
    assert rate(world, {"a1": 1}) == pytest.approx(50.0)  # the type's


def test_servers_run_as_others_of_their_model_did() -> None:
    """a0 and a1 are of one model, a2 and a3 of another; neither a1 nor a3 ever ran a job."""
    cluster = [
        msgspec.structs.replace(node(name), server=model, address="10.0.0.1")
        for name, model in (("a0", "old"), ("a1", "old"), ("a2", "new"), ("a3", "new"))
    ]
    made = store()
    made.add([observed("a2", throughput=90.0)])
    exported = page(made, ExportStore(), cluster).lines
    assert not any(b"10.0.0.1" in line for line in exported)
    world = LearntWorld(recalled([encoded(Header(version=VERSION)), *exported]), seed=1)
    rates = [
        world.stretch(spec(), [one], Gang.of({one.node_id: 1}), key="p", index=0).throughput
        for one in cluster
    ]
    assert rates == pytest.approx([50.0, 50.0, 90.0, 90.0])


def test_unlike_shares_run_as_the_store_would_estimate_them() -> None:
    """150 samples: forward 0.45 s, backward 0.75 s beside an exchange of 1 s, the update 0.2 s."""
    unused = MemoryStore(half_life_s=1e9)
    unused.keep(workload(), {HERE.gpu_type: modules()})
    world = LearntWorld(Recall(unused), seed=1)
    nodes = [node(name, gpus=8) for name in ("a1", "a2")]
    gang = Gang.of({one.node_id: 1 for one in nodes}, Proportional(samples=(150, 50)))
    found = world.stretch(spec(), nodes, gang, key="p", index=0).throughput
    assert found == pytest.approx(200 / (0.45 + max(0.75 + 0.2 * 1.0, 1.0) + 0.2))


def test_a_learnt_world_profiles_by_its_time_modules_and_all_reduces_by_its_paths() -> None:
    world = LearntWorld(Recall(store()), seed=1)
    measured = world.profile(spec(), HERE, iterations=12, key="p")
    assert measured.iteration_s == pytest.approx([1.0] * 12)
    assert measured.parameters == modules().parameters
    ring = Ring(members=((HERE, 4),))
    assert world.all_reduce(ring, size=10 * GIGA, repeats=2, key="p") == pytest.approx((0.75, 0.75))


def test_workloads_unknown_to_the_store_do_not_fit() -> None:
    world = LearntWorld(Recall(store()), seed=1)
    with pytest.raises(DoesNotFit, match="nothing about vgg on imagenet on A"):
        world.stretch(spec("vgg"), [HERE], Gang.of({HERE.node_id: 1}), key="p", index=0)
    with pytest.raises(DoesNotFit, match="on B"):
        world.profile(spec(), node("b0", "B"), iterations=10, key="p")


def test_the_world_learnt_is_read_from_an_export(tmp_path: Path) -> None:
    make = WORLDS.load("learnt")
    world = make(Settings(learnt_from=str(export(tmp_path))), None)
    assert world.workloads == ("resnet18 on imagenet",)
    assert rate(world, {"a0": 1}) == pytest.approx(50.0)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "lab.jsonl:1: not an exported store"),
        (b'{"kind":"hopyard-store","version":99}\n', "lab.jsonl:1: an export of version 99"),
        (encoded(Header(version=2)) + b'\n{"kind":"theory"}\n', "lab.jsonl:2: "),
    ],
)
def test_an_invalid_export_is_refused_with_its_line(text: bytes, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "lab.jsonl"
    file.write_bytes(text)
    with pytest.raises(InvalidFile, match=reason):
        LearntWorld.of_file(str(file), seed=1)
    with pytest.raises(InvalidFile, match="learnt_from"):
        LearntWorld.of_file("", seed=1)
    with pytest.raises(InvalidFile, match="No such file"):
        LearntWorld.of_file(str(tmp_path / "none"), seed=1)
