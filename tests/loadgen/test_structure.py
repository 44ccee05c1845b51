"""Worlds with what no formula of the estimator knows: each has what its name says, and nothing else."""

from statistics import fmean, stdev
from typing import get_args

import numpy as np
import pytest

from loadgen.world import EmulatedWorld, emulated
from loadgen.world.communication import all_reduce_s
from loadgen.world.structure import BUCKETS, PLAIN, Structure, structures
from schemas.calibration import Ring
from schemas.catalogue import NOTHING_MORE
from schemas.cluster import Node
from schemas.ids import RotaId
from schemas.jobs import JobSpec
from schemas.placement import Gang, Relaxed
from schemas.settings import Settings, WorldStructure
from tests.loadgen.test_world import Members, node, spec, stretch

HALF: Members = [(node("a"), 4)]
PAIR: Members = [(node("a"), 8), (node("b"), 8)]
JOB = spec("convnext-base", "imagenet")


def rate(structure: Structure, members: Members = HALF, job: JobSpec = JOB, stretches: int = 12) -> float:
    world = EmulatedWorld(1, structure=structure)
    return fmean(stretch(world, job, members, index).throughput for index in range(stretches))


def test_every_name_of_the_setting_is_a_world_and_says_what_it_has() -> None:
    assert list(structures()) == list(get_args(WorldStructure))
    assert all(one.about for one in structures().values())
    assert len({repr(one) for one in structures().values()}) == len(structures())


def test_the_setting_chooses_it() -> None:
    def ask(name: WorldStructure) -> float:
        world = emulated(Settings(seed=1, world_structure=name), NOTHING_MORE)
        return stretch(world, JOB, PAIR).throughput

    assert ask("plain") == stretch(EmulatedWorld(1), JOB, PAIR).throughput
    assert ask("harsh") < 0.95 * ask("plain")


@pytest.mark.parametrize("name", [name for name in structures() if name != "plain"])
def test_each_structure_changes_the_speed_of_gangs(name: str) -> None:
    jobs = [JOB, *(spec(model, "imagenet") for model in ("vgg13", "mobilenet-v2"))]
    assert any(rate(structures()[name], PAIR, job) != rate(PLAIN, PAIR, job) for job in jobs)


def test_larger_buckets_hide_less() -> None:
    rates = [rate(Structure(bucket_bytes=size), PAIR) for size in BUCKETS]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] < 0.97 * rates[0]


def test_the_buckets_of_a_job_stay_the_same() -> None:
    by_job = Structure(buckets_by_job=True)
    assert {by_job.bucket_of(f"job-{index}") for index in range(100)} == set(BUCKETS)
    assert by_job.bucket_of("one") == by_job.bucket_of("one")


def test_many_messages_wait_more_often_than_one() -> None:
    ring, size = list(PAIR), 100e6
    rings = [(one, gpus) for one, gpus in ring]
    whole = PLAIN.exchange_s(rings, size, (1.0, 1.0), 0.0, "job")
    parts = Structure(message_a_bucket=True, bucket_bytes=1e6).exchange_s(rings, size, (1.0, 1.0), 0.0, "job")
    assert parts > 1.2 * whole


def test_with_protocols_an_all_reduce_bends_with_its_size() -> None:
    """Without, every size lies on one line (saturation is a second latency); with, small ones below."""
    sizes = np.array([1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9])

    def off(*, protocols: bool) -> float:
        times = np.array([all_reduce_s(PAIR, size, (1.0, 1.0), 0.0, protocols=protocols) for size in sizes])
        slope = (times[-1] - times[-2]) / (sizes[-1] - sizes[-2])
        line = times[-1] + slope * (sizes - sizes[-1])
        return float(np.max(np.abs(line - times) / times))

    assert off(protocols=False) < 1e-6
    assert off(protocols=True) > 0.5


def test_a_calibration_measures_the_protocols_that_jobs_have() -> None:
    def seconds(structure: Structure) -> float:
        world = EmulatedWorld(1, structure=structure)
        return min(world.all_reduce(Ring(members=tuple(PAIR)), size=1e4, repeats=5, key="k"))

    assert seconds(Structure(protocols=True)) < 0.5 * seconds(PLAIN)


def test_clock_rates_sink_with_the_load_of_the_node() -> None:
    sinking, alone = Structure(clocks=0.2), [(node("a", gpus=8), 1)]
    whole = [(node("a", gpus=8), 8)]
    assert rate(sinking, whole) / rate(PLAIN, whole) == pytest.approx(0.8, abs=0.03)
    assert 0.8 < rate(sinking, alone) / rate(PLAIN, alone) < 0.97


def test_other_jobs_on_a_host_slow_data_heavy_jobs_but_not_one_alone() -> None:
    contended, whole = Structure(contention=0.5), [(node("a", gpus=8), 8)]
    reads = spec("mobilenet-v2", "imagenet")
    assert rate(contended, job=reads) < 0.96 * rate(PLAIN, job=reads)
    assert rate(contended, whole, reads) == pytest.approx(rate(PLAIN, whole, reads), rel=1e-2)
    rates = [
        stretch(EmulatedWorld(1, structure=contended), reads, [(node("a"), 2)], index).throughput
        for index in range(20)
    ]
    assert stdev(rates) / fmean(rates) > 0.02


def test_unlike_inputs_show_in_a_profile_and_slow_gangs() -> None:
    job, unlike = spec("vit-b16", "food-101"), Structure(inputs=0.15)

    def spread(structure: Structure) -> float:
        world = EmulatedWorld(1, structure=structure)
        times = world.profile(job, node("a"), iterations=50, key="k").forward_s
        return stdev(times) / fmean(times)

    assert spread(PLAIN) < 0.03
    assert spread(unlike) > 0.1
    assert rate(unlike, PAIR, job) < 0.85 * rate(PLAIN, PAIR, job)


def test_moving_gradients_slow_the_backward_pass() -> None:
    assert rate(Structure(slowed_backward=0.3), PAIR) < 0.97 * rate(PLAIN, PAIR)
    alone = [(node("a"), 1)]
    assert rate(Structure(slowed_backward=0.3), alone) == rate(PLAIN, alone)


def test_jobs_that_take_turns_run_in_the_same_world() -> None:
    there = [node("a"), node("b")]
    gang = Gang.of({one.node_id: 2 for one in there}, Relaxed(tasks=((1, 1), (1, 1)), rota=RotaId("r")))

    def rota(structure: Structure) -> float:
        [found] = EmulatedWorld(1, structure=structure).rota([(JOB, gang)], there, key="r", index=1)
        return found

    assert rota(structures()["harsh"]) < 0.95 * rota(PLAIN)


def test_the_same_question_has_the_same_answer_in_any_order() -> None:
    harsh = structures()["harsh"]
    one, other = EmulatedWorld(3, structure=harsh), EmulatedWorld(3, structure=harsh)
    assert [stretch(one, JOB, PAIR, index) for index in (0, 1, 2)] == [
        stretch(other, JOB, PAIR, index) for index in (2, 1, 0)
    ][::-1]


def test_a_node_of_one_gpu_has_no_contention() -> None:
    lone: list[tuple[Node, int]] = [(node("a", gpus=1), 1)]
    assert rate(Structure(contention=0.5), lone) == pytest.approx(rate(PLAIN, lone), rel=1e-2)
