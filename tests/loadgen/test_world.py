"""The emulated world: pure, seeded, and richer than the formula it is meant to test."""

import math
from collections.abc import Callable
from statistics import mean, stdev

import pytest

from loadgen.catalogue.facts import models
from loadgen.world import EmulatedWorld
from schemas.cluster import Node
from schemas.ids import GpuType, NodeId
from schemas.jobs import JobSpec, Workload
from services.agent.world import DoesNotFit, Gang, World


def spec(model: str = "vit-b16", dataset: str = "food-101", batch_size: int | None = None) -> JobSpec:
    known = models().get((model, dataset))
    batch = batch_size or (known.batch if known else 32)
    workload = Workload(model=model, dataset=dataset, batch_size=batch)
    return JobSpec(name="job", workload=workload, demand=(1,), samples=1e6)


def node(name: str = "node-0", gpu_type: str = "titan-xp", gpus: int = 8, server: str = "w780-g") -> Node:
    return Node(
        node_id=NodeId(name),
        gpu_type=GpuType(gpu_type),
        gpus=gpus,
        server=server,
        link_bandwidth=4.7e9,
        network_bandwidth=2.7e9,
    )


def throughput(job: JobSpec, gang: Gang, seed: int = 1, stretches: int = 20) -> float:
    """Samples/s per GPU."""
    world = EmulatedWorld(seed)
    rates = [world.stretch(job, gang, key="pl", index=index).throughput for index in range(stretches)]
    return mean(rates) / sum(gpus for _, gpus in gang)


def waiting(gpus: int) -> float:
    """Seconds an iteration that the first process waits for the slowest."""
    job, gang = spec("resnet18", "imagenet"), [(node(), gpus)]
    world = EmulatedWorld(1)
    return mean(
        wait
        for index in range(30)
        for wait in world.stretch(job, gang, key="pl", index=index).wait_s[NodeId("node-0")]
    )


def test_the_world_is_one_that_agents_can_ask() -> None:
    world: World = EmulatedWorld(1)

    assert world.stretch(spec(), [(node(), 1)], key="pl", index=0).throughput > 0


def test_the_same_question_has_the_same_answer_in_any_order() -> None:
    def ask(world: EmulatedWorld, index: int) -> object:
        return world.stretch(spec(), [(node(), 4)], key="pl", index=index)

    one, other = EmulatedWorld(7), EmulatedWorld(7)
    forward = [ask(one, index) for index in (0, 1, 2)]
    backward = [ask(other, index) for index in (2, 1, 0)]

    assert forward == backward[::-1]


@pytest.mark.parametrize(
    "other",
    [
        lambda: EmulatedWorld(2).stretch(spec(), [(node(), 4)], key="pl", index=0),
        lambda: EmulatedWorld(1).stretch(spec(), [(node(), 4)], key="other", index=0),
        lambda: EmulatedWorld(1).stretch(spec(), [(node(), 4)], key="pl", index=1),
    ],
    ids=["seed", "key", "index"],
)
def test_seed_key_and_index_tell_draws_apart(other: Callable[[], object]) -> None:
    assert EmulatedWorld(1).stretch(spec(), [(node(), 4)], key="pl", index=0) != other()


def test_a_draw_is_what_it_always_was() -> None:
    rate = EmulatedWorld(1).stretch(spec(), [(node(), 4)], key="pl", index=0).throughput

    assert rate == pytest.approx(236.03365286438543, rel=1e-9)


def test_waiting_emerges_and_grows_with_the_number_of_processes() -> None:
    assert waiting(1) == 0.0
    assert 0.0 < waiting(2) < waiting(8)


def test_a_process_that_waits_is_not_the_slowest() -> None:
    told = EmulatedWorld(1).stretch(spec("resnet18", "imagenet"), [(node(), 8)], key="pl", index=0)

    assert all(wait >= 0 for waits in told.wait_s.values() for wait in waits)


def test_every_node_of_the_gang_reports_as_many_waits_as_data_times() -> None:
    gang = [(node("a"), 8), (node("b"), 3)]
    told = EmulatedWorld(1).stretch(spec("resnet18", "imagenet"), gang, key="pl", index=0)

    assert list(told.data_s) == list(told.wait_s) == ["a", "b"]
    assert {len(times) for times in (*told.data_s.values(), *told.wait_s.values())} == {8}


def test_two_servers_alike_differ_by_a_few_per_cent_for_good() -> None:
    rates = [throughput(spec(), [(node(f"node-{index}"), 1)]) for index in range(12)]
    again = [throughput(spec(), [(node(f"node-{index}"), 1)]) for index in range(12)]

    assert rates == again
    assert 0.01 < stdev(rates) / mean(rates) < 0.06


def test_a_weaker_host_slows_a_job_that_reads_much() -> None:
    job = spec("resnet18", "imagenet")
    weak = [throughput(job, [(node(f"a-{i}", "rtx-3090", server="w780-g"), 1)]) for i in range(5)]
    strong = [throughput(job, [(node(f"a-{i}", "rtx-3090", server="yk8100-10g"), 1)]) for i in range(5)]

    assert mean(strong) > 1.1 * mean(weak)


def test_spreading_a_job_with_large_gradients_costs_throughput() -> None:
    job = spec("vgg11", "cifar10")
    alone = throughput(job, [(node("a"), 1)])
    together = throughput(job, [(node("a"), 2)])
    apart = throughput(job, [(node("a"), 1), (node("b"), 1)])

    assert apart < 0.7 * together < together < alone


def test_spreading_a_job_that_computes_long_costs_little() -> None:
    job = spec("convnext-base", "imagenet")
    gang = [(node("a"), 1), (node("b"), 1)]

    assert throughput(job, gang) > 0.93 * throughput(job, [(node("a"), 1)])


@pytest.mark.parametrize("workload", list(models())[:21], ids="-".join)
def test_more_gpus_are_faster_together_and_slower_each(workload: tuple[str, str]) -> None:
    job = spec(*workload)
    one, eight = (throughput(job, [(node(), gpus)]) for gpus in (1, 8))

    assert 1.0 < 8 * eight / one < 8.4


def test_an_unstable_loader_shows_two_kinds_of_data_time_and_a_stable_one_does_not() -> None:
    world = EmulatedWorld(1)

    def spread(job: JobSpec) -> float:
        times = world.profile(job, node(), iterations=50, key="pr").data_s
        return max(times) / min(times)

    assert spread(spec("resnet18", "imagenet")) > 10
    assert spread(spec("resnet18", "cifar10")) < 2


def test_a_profile_has_one_number_an_iteration() -> None:
    told = EmulatedWorld(1).profile(spec(), node(), iterations=17, key="pr")
    parts = (told.data_s, told.forward_s, told.backward_s, told.update_s, told.iteration_s)

    assert {len(part) for part in parts} == {17}
    assert all(seconds > 0 for part in parts for seconds in part)
    assert told.parameters == models()["vit-b16", "food-101"].parameters


@pytest.mark.parametrize(("model", "dataset"), [("resnet50", "imagenet"), ("vit-b16", "food-101")])
def test_a_profile_follows_the_pattern_of_the_model(model: str, dataset: str) -> None:
    told = EmulatedWorld(1).profile(spec(model, dataset), node(), iterations=50, key="pr")
    parts = zip(told.data_s, told.forward_s, told.backward_s, told.update_s, strict=True)
    overlap = models()[model, dataset].pattern == 1
    predicted = [
        forward + (max(data, backward + update) if overlap else data + backward + update)
        for data, forward, backward, update in parts
    ]

    assert mean(told.iteration_s) == pytest.approx(mean(predicted), rel=0.03)


def test_a_job_too_large_for_the_memory_does_not_fit() -> None:
    with pytest.raises(
        DoesNotFit, match=r"out of memory: resnet50 .* needs 12\.4 GB, a gtx-1080-ti has 11\.8"
    ):
        EmulatedWorld(1).profile(
            spec("resnet50", "imagenet"), node(gpu_type="gtx-1080-ti"), iterations=10, key="pr"
        )


def test_a_gang_does_not_fit_either() -> None:
    with pytest.raises(DoesNotFit, match="out of memory"):
        EmulatedWorld(1).stretch(spec(batch_size=4096), [(node(), 2)], key="pl", index=0)


@pytest.mark.parametrize(
    ("job", "gpu_type", "reason"),
    [(spec("mlp", "mnist"), "v100", "mlp on mnist"), (spec(), "abacus", "GPU type abacus")],
)
def test_what_nobody_knows_does_not_fit(job: JobSpec, gpu_type: str, reason: str) -> None:
    with pytest.raises(DoesNotFit, match=reason):
        EmulatedWorld(1).profile(job, node(gpu_type=gpu_type), iterations=10, key="pr")


def test_a_gang_of_unlike_gpus_runs_at_the_pace_of_the_slowest() -> None:
    job = spec()
    slow, fast = node("slow", "k80"), node("fast", "v100")
    mixed = throughput(job, [(slow, 1), (fast, 1)])

    assert mixed == pytest.approx(throughput(job, [(slow, 1)]), rel=0.06)
    assert math.isfinite(mixed)
