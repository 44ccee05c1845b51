"""The emulated world: pure, seeded, and richer than the formula it is meant to test."""

import math
from collections.abc import Callable, Sequence
from statistics import mean, stdev

import pytest

from loadgen.catalogue.specs import shipped
from loadgen.world import EmulatedWorld
from schemas.cluster import Node
from schemas.events import StartOrdered
from schemas.ids import GpuType, JobId, NodeId, PlacementId, RotaId
from schemas.jobs import JobSpec, Workload
from schemas.measurements import Stretch
from schemas.placement import Gang, Proportional, Relaxed
from schemas.samples import ThroughputObserved
from services.agent.reports import effects_of
from services.agent.state import Worker
from services.agent.tasks import Observed
from services.agent.work.world import DoesNotFit, World
from shared.domain import gangs
from shared.domain.core import Send


def spec(model: str = "vit-b16", dataset: str = "food-101", batch_size: int | None = None) -> JobSpec:
    known = shipped().models.get((model, dataset))
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


Members = Sequence[tuple[Node, int]]


def stretch(world: World, job: JobSpec, members: Members, index: int = 0, key: str = "pl") -> Stretch:
    """A stretch of a gang in lockstep."""
    there = sorted(members, key=lambda member: member[0].node_id)
    gang = Gang.of({one.node_id: gpus for one, gpus in there})
    return world.stretch(job, [one for one, _ in there], gang, key=key, index=index)


def throughput(job: JobSpec, gang: Members, seed: int = 1, stretches: int = 20) -> float:
    """Samples/s per GPU."""
    world = EmulatedWorld(seed)
    rates = [stretch(world, job, gang, index).throughput for index in range(stretches)]
    return mean(rates) / sum(gpus for _, gpus in gang)


def waiting(gpus: int) -> float:
    """Seconds an iteration that the first process waits for the slowest."""
    job, gang = spec("resnet18", "imagenet"), [(node(), gpus)]
    world = EmulatedWorld(1)
    return mean(
        wait for index in range(30) for wait in stretch(world, job, gang, index).wait_s[NodeId("node-0")]
    )


def test_the_world_is_one_that_agents_can_ask() -> None:
    world: World = EmulatedWorld(1)

    assert stretch(world, spec(), [(node(), 1)], 0).throughput > 0


def test_the_same_question_has_the_same_answer_in_any_order() -> None:
    def ask(world: EmulatedWorld, index: int) -> object:
        return stretch(world, spec(), [(node(), 4)], index)

    one, other = EmulatedWorld(7), EmulatedWorld(7)
    forward = [ask(one, index) for index in (0, 1, 2)]
    backward = [ask(other, index) for index in (2, 1, 0)]

    assert forward == backward[::-1]


@pytest.mark.parametrize(
    "other",
    [
        lambda: stretch(EmulatedWorld(2), spec(), [(node(), 4)], 0),
        lambda: stretch(EmulatedWorld(1), spec(), [(node(), 4)], 0, "other"),
        lambda: stretch(EmulatedWorld(1), spec(), [(node(), 4)], 1),
    ],
    ids=["seed", "key", "index"],
)
def test_seed_key_and_index_tell_draws_apart(other: Callable[[], object]) -> None:
    assert stretch(EmulatedWorld(1), spec(), [(node(), 4)], 0) != other()


def test_a_draw_is_the_same_as_in_earlier_versions() -> None:
    rate = stretch(EmulatedWorld(1), spec(), [(node(), 4)], 0).throughput

    assert rate == pytest.approx(235.00870629074856, rel=1e-9)


def test_waiting_emerges_and_grows_with_the_number_of_processes() -> None:
    assert waiting(1) == 0.0
    assert 0.0 < waiting(2) < waiting(8)


def test_a_process_that_waits_is_not_the_slowest() -> None:
    answer = stretch(EmulatedWorld(1), spec("resnet18", "imagenet"), [(node(), 8)], 0)

    assert all(wait >= 0 for waits in answer.wait_s.values() for wait in waits)


def test_every_node_of_the_gang_reports_as_many_waits_as_data_times() -> None:
    gang = [(node("a"), 8), (node("b"), 3)]
    answer = stretch(EmulatedWorld(1), spec("resnet18", "imagenet"), gang, 0)

    assert list(answer.data_s) == list(answer.wait_s) == ["a", "b"]
    assert {len(times) for times in (*answer.data_s.values(), *answer.wait_s.values())} == {8}


def test_equal_servers_differ_by_a_constant_few_per_cent() -> None:
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
    job = spec("vgg19", "cifar10")
    alone = throughput(job, [(node("a"), 1)])
    together = throughput(job, [(node("a"), 2)])
    apart = throughput(job, [(node("a"), 1), (node("b"), 1)])

    assert apart < 0.7 * together < together < alone


def test_spreading_a_job_that_computes_long_costs_little() -> None:
    job = spec("convnext-base", "imagenet")
    gang = [(node("a"), 1), (node("b"), 1)]

    assert throughput(job, gang) > 0.93 * throughput(job, [(node("a"), 1)])


@pytest.mark.parametrize("workload", list(shipped().models)[:21], ids="-".join)
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
    answer = EmulatedWorld(1).profile(spec(), node(), iterations=17, key="pr")
    parts = (answer.data_s, answer.forward_s, answer.backward_s, answer.update_s, answer.iteration_s)

    assert {len(part) for part in parts} == {17}
    assert all(seconds > 0 for part in parts for seconds in part)
    assert answer.parameters == shipped().models["vit-b16", "food-101"].parameters


@pytest.mark.parametrize(("model", "dataset"), [("resnet50", "imagenet"), ("vit-b16", "food-101")])
def test_a_profile_follows_the_pattern_of_the_model(model: str, dataset: str) -> None:
    answer = EmulatedWorld(1).profile(spec(model, dataset), node(), iterations=50, key="pr")
    parts = zip(answer.data_s, answer.forward_s, answer.backward_s, answer.update_s, strict=True)
    overlap = shipped().models[model, dataset].pattern == 1
    predicted = [
        forward + (max(data, backward + update) if overlap else data + backward + update)
        for data, forward, backward, update in parts
    ]

    assert mean(answer.iteration_s) == pytest.approx(mean(predicted), rel=0.03)


def test_a_job_too_large_for_the_memory_does_not_fit() -> None:
    with pytest.raises(DoesNotFit, match=r"out of memory: resnet50 .* needs 12\.4 GB, gtx-1080-ti has 11\.8"):
        EmulatedWorld(1).profile(
            spec("resnet50", "imagenet"), node(gpu_type="gtx-1080-ti"), iterations=10, key="pr"
        )


@pytest.mark.parametrize("gpu_type", ["k80", "m60"])
def test_bert_in_batches_of_32_fits_no_small_gpu_and_in_batches_of_12_does(gpu_type: str) -> None:
    """So Hare's mixes have 12, where its paper has 32."""
    world, small = EmulatedWorld(1), node(gpu_type=gpu_type)
    with pytest.raises(DoesNotFit, match=r"needs 16\.8 GB"):
        world.profile(spec("bert-base", "squad", batch_size=32), small, iterations=10, key="pr")
    world.profile(spec("bert-base", "squad", batch_size=12), small, iterations=10, key="pr")


def test_a_gang_does_not_fit_either() -> None:
    with pytest.raises(DoesNotFit, match="out of memory"):
        stretch(EmulatedWorld(1), spec(batch_size=4096), [(node(), 2)], 0)


@pytest.mark.parametrize(
    ("job", "gpu_type", "reason"),
    [(spec("mlp", "mnist"), "v100", "mlp on mnist"), (spec(), "abacus", "GPU type abacus")],
)
def test_unknown_workloads_and_gpu_types_do_not_fit(job: JobSpec, gpu_type: str, reason: str) -> None:
    with pytest.raises(DoesNotFit, match=reason):
        EmulatedWorld(1).profile(job, node(gpu_type=gpu_type), iterations=10, key="pr")


def test_a_gang_of_unlike_gpus_runs_at_the_pace_of_the_slowest() -> None:
    job = spec()
    slow, fast = node("slow", "k80"), node("fast", "v100")
    mixed = throughput(job, [(slow, 1), (fast, 1)])

    assert mixed == pytest.approx(throughput(job, [(slow, 1)]), rel=0.06)
    assert math.isfinite(mixed)


# ---- modes of synchronisation

SLOW, FAST = node("slow", "t4"), node("swift", "v100")
PAIR = {SLOW.node_id: 2, FAST.node_id: 1}


def rate_of(gang: Gang, *, seed: int = 1, stretches: int = 40) -> float:
    """samples/s of a gang on the two nodes."""
    world, there = EmulatedWorld(seed), [one for one in (SLOW, FAST) if gang.on(one.node_id)]
    return mean(
        world.stretch(spec(), there, gang, key="pl", index=index).throughput for index in range(stretches)
    )


def alone() -> dict[NodeId, float]:
    """samples/s of one GPU of each node."""
    return {one: rate_of(Gang.of({one: 1})) for one in PAIR}


def learnt(members: Members, job: JobSpec) -> dict[str, float]:
    """samples/s of one GPU by node: the mean of what an agent reports of some stretches."""
    world, there = EmulatedWorld(1), sorted(members, key=lambda member: member[0].node_id)
    order = StartOrdered(
        at=0.0,
        node_id=there[0][0].node_id,
        placement_id=PlacementId("pl"),
        job_id=JobId("job"),
        spec=job,
        gang=Gang.of({one.node_id: gpus for one, gpus in there}),
        nodes=tuple(one for one, _ in there),
        samples_done=0.0,
        learning_rate=None,
    )
    reports = [Observed(order.placement_id, 60.0, stretch(world, job, members, index)) for index in range(30)]
    worker = Worker(order=order, gpu_indices=(0, 1))
    paces: dict[str, list[float]] = {}
    for effect in (effect for one in reports for effect in effects_of(worker, one, 0.0)):
        assert isinstance(effect, Send)
        assert isinstance(effect.sample, ThroughputObserved)
        paces.setdefault(effect.sample.node_id, []).append(effect.sample.throughput)
    return {name: mean(values) for name, values in paces.items()}


def test_a_gpu_beside_a_slower_one_shows_its_own_pace() -> None:
    job = spec("resnet18", "cifar10")
    fast = [node(name, "rtx-3090", server="yk8100") for name in ("node-0", "node-1")]
    slow = [node(name, "titan-xp") for name in ("node-2", "node-3")]
    alike = learnt([(one, 2) for one in fast], job) | learnt([(one, 2) for one in slow], job)
    unlike = learnt([(fast[0], 2), (slow[0], 2)], job)
    assert alike["node-0"] > 1.3 * alike["node-2"]
    assert unlike["node-0"] == pytest.approx(alike["node-0"], rel=0.05)
    assert unlike["node-2"] == pytest.approx(alike["node-2"], rel=0.05)


def test_shares_by_speed_come_near_the_sum_of_speeds() -> None:
    batch_size, rates = spec().workload.batch_size, alone()
    gang = gangs.proportional(PAIR, rates, batch_size)
    lockstep, shared = rate_of(Gang.of(PAIR)), rate_of(gang)
    ideal = gangs.throughput(gang, list(rates.values()), batch_size)
    assert lockstep < shared < ideal
    even = gangs.proportional(PAIR, dict.fromkeys(PAIR, 1.0), batch_size)
    assert rate_of(even) == lockstep


def test_with_one_task_a_gpu_the_exchange_is_not_hidden() -> None:
    relaxed = rate_of(Gang.of(PAIR, Relaxed(tasks=((1, 1), (1,)))))
    assert 0.5 * rate_of(Gang.of(PAIR)) < relaxed < rate_of(Gang.of(PAIR))


@pytest.mark.parametrize("tasks", [((4,), ()), ((1,), (3,)), ((3,), (1,)), ((2,), (6,))])
def test_a_round_takes_as_long_as_its_busiest_gpu(tasks: tuple[tuple[int, ...], ...]) -> None:
    place = {one: 1 for one, each in zip(PAIR, tasks, strict=True) if each}
    gang = Gang.of(place, Relaxed(tasks=tuple(each for each in tasks if each)))
    rates = [rate for one, rate in alone().items() if one in place]
    batch_size = spec().workload.batch_size
    round_s = gangs.global_batch(gang, batch_size) / rate_of(gang)
    computing_s = gangs.global_batch(gang, batch_size) / gangs.throughput(gang, rates, batch_size)
    single = len(place) == 1
    assert round_s == pytest.approx(computing_s, rel=0.02) if single else round_s > computing_s
    assert round_s < computing_s + 0.2  # one exchange a round, however many tasks


def test_a_share_that_is_too_large_for_the_memory_does_not_fit() -> None:
    gang = Gang.of(PAIR, Proportional(samples=(2, 3 * 4096 - 2)))
    with pytest.raises(DoesNotFit, match="out of memory"):
        EmulatedWorld(1).stretch(spec(batch_size=4096), [SLOW, FAST], gang, key="pl", index=0)


def test_a_rota_hides_the_exchange_of_one_job_behind_the_tasks_of_another() -> None:
    """Two jobs alike, on GPUs of two nodes: together faster than one after the other, never twice as fast."""
    world, there = EmulatedWorld(1), [SLOW, FAST]

    def gang(place: int) -> Gang:
        return Gang.of(PAIR, Relaxed(tasks=((1, 1), (2,)), rota=RotaId("r"), place=place))

    [alone_rate] = world.rota([(spec(), gang(0))], there, key="r", index=1)
    both = world.rota([(spec(), gang(0)), (spec(), gang(1))], there, key="r", index=1)
    assert both[0] == pytest.approx(both[1])
    assert alone_rate < sum(both) < 2 * alone_rate
    own = rate_of(Gang.of(PAIR, Relaxed(tasks=((1, 1), (2,)))))
    assert alone_rate == pytest.approx(own, rel=0.05)


def test_samples_of_a_rota_are_proportional_to_turns() -> None:
    jobs = [
        (spec(), Gang.of({FAST.node_id: 1}, Relaxed(tasks=((1,),), rota=RotaId("r"), turns=n, place=n)))
        for n in (0, 1, 3)
    ]
    rates = EmulatedWorld(1).rota(jobs, [FAST], key="r", index=1)
    assert rates[0] == 0.0
    assert rates[2] == pytest.approx(3 * rates[1])
    assert EmulatedWorld(1).rota(jobs, [FAST], key="r", index=1) == rates
    assert EmulatedWorld(1).rota(jobs, [FAST], key="r", index=2) != rates


def test_a_job_takes_no_time_where_it_has_no_task() -> None:
    gang = Gang.of(PAIR, Relaxed(tasks=((0, 0), (1,)), rota=RotaId("r")))
    [rate] = EmulatedWorld(1).rota([(spec(), gang)], [SLOW, FAST], key="r", index=1)
    assert rate == pytest.approx(rate_of(Gang.of({FAST.node_id: 1})), rel=0.05)
