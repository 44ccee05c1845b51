"""The world of measured speeds, on the figures of JPS that its notes worked out by hand."""

import pytest
from msgspec.structs import replace

from loadgen.catalogue.files import read_catalogue
from loadgen.world import TableWorld
from schemas.calibration import Ring
from schemas.catalogue import NOTHING_MORE, CatalogueFile, Speeds
from schemas.cluster import Node
from schemas.ids import GpuType, NodeId, RotaId
from schemas.jobs import JobSpec, Workload
from schemas.placement import Gang, Proportional, Relaxed
from schemas.settings import Settings
from services.agent.work.world import DoesNotFit, World
from shared.domain import gangs
from shared.domain.catalogue import InvalidCatalogue, merged
from shared.runtime.plugins import WORLDS
from tests.paths import ROOT

T4, V100 = NodeId("t4"), NodeId("v100")
RESNET = Speeds(
    model="resnet18",
    dataset="tiny-imagenet",
    parameters=11.28e6,
    rates={GpuType("t4"): 275.0, GpuType("v100"): 644.0},
)
VGG = Speeds(
    model="vgg19",
    dataset="cifar10",
    parameters=139.61e6,
    rates={GpuType("t4"): 884.0, GpuType("v100"): 1754.0},
)
CATALOGUE = CatalogueFile(speeds=[RESNET, VGG])
WORLD = TableWorld(1, CATALOGUE)
PLACE = {T4: 2, V100: 1}


def node(gpu_type: str) -> Node:
    """300 Gb/s inside a node and 10 Gb/s between nodes, of which a ring achieves half."""
    return Node(
        node_id=NodeId(gpu_type),
        gpu_type=GpuType(gpu_type),
        gpus=5,
        server="generic",
        link_bandwidth=300e9 / 8 / 2,
        network_bandwidth=10e9 / 8 / 2,
    )


def spec(of: Speeds = RESNET, epoch: int | None = 100_000) -> JobSpec:
    workload = Workload(model=of.model, dataset=of.dataset, batch_size=128, dataset_samples=epoch)
    return JobSpec(name="job", workload=workload, demand=(3,), samples=2e7)


def rate(gang: Gang, of: Speeds = RESNET, world: TableWorld = WORLD) -> float:
    nodes = [node(one) for one in gang.nodes]
    return world.stretch(spec(of), nodes, gang, key="p", index=0).throughput


def shares(gang: Gang) -> Gang:
    return gangs.proportional(gang.configuration, {T4: 275.0, V100: 644.0}, 128)


def test_the_world_table_is_found_by_its_name() -> None:
    assert isinstance(WORLDS.load("table")(Settings(), CATALOGUE), TableWorld)
    world: World = WORLD
    assert world.workloads == ("resnet18 on tiny-imagenet", "vgg19 on cifar10")


def test_in_lockstep_the_slowest_gpu_decides() -> None:
    assert rate(Gang.of({T4: 1})) == pytest.approx(275.0)
    assert rate(Gang.of({V100: 1})) == pytest.approx(644.0)
    assert rate(Gang.of(PLACE)) == pytest.approx(825.0, rel=1e-3)


def test_with_proportional_shares_speeds_nearly_add_up() -> None:
    """E6: 177 and 207 of 384 samples, 89 on the fuller T4: 0.3236 s."""
    gang = shares(Gang.of(PLACE))
    assert gang.sync == Proportional(samples=(177, 207))
    exchange_s = 2 / 3 * 4 * 11.28e6 / 0.625e9
    epoch_s = 100_000 / 384 * 89 / 275
    assert rate(gang) == pytest.approx(100_000 / (epoch_s + exchange_s))
    assert rate(gang) == pytest.approx(1186.5, rel=1e-3)


@pytest.mark.parametrize(
    ("ring", "seconds"), [(((node("v100"), 5),), 0.0238), (((node("t4"), 1), (node("v100"), 1)), 0.4468)]
)
def test_an_exchange_takes_as_long_as_the_paper_s_sixth_equation_says(
    ring: tuple[tuple[Node, int], ...], seconds: float
) -> None:
    """E6: of VGG-19, once an epoch."""
    found = WORLD.all_reduce(Ring(members=ring), size=4 * VGG.parameters, repeats=2, key="k")
    assert list(found) == pytest.approx([seconds, seconds], rel=2e-3)
    alone = rate(Gang.of({ring[0][0].node_id: 1}), VGG)
    gang = Gang.of({one.node_id: gpus for one, gpus in ring})
    assert 100_000 / rate(gang, VGG) - 100_000 / (alone * gang.gpus) == pytest.approx(seconds, rel=0.01)


def test_a_job_without_epochs_exchanges_once() -> None:
    gang = Gang.of({T4: 1, V100: 1})
    nodes = [node(one) for one in gang.nodes]
    whole = WORLD.stretch(spec(epoch=None), nodes, gang, key="p", index=0).throughput
    assert 2e7 / whole == pytest.approx(2e7 / 550.0 + 0.5 * 4 * 11.28e6 / 0.625e9)


def test_tasks_in_turn_take_as_long_as_the_fullest_gpu() -> None:
    gang = Gang.of(PLACE, Relaxed(tasks=((1, 1), (2,))))
    assert rate(gang) == pytest.approx(512 / max(128 / 275, 256 / 644), rel=1e-3)


def test_a_profile_is_the_rate_with_the_error_of_the_file() -> None:
    plain = WORLD.profile(spec(), node("t4"), iterations=3, key="k")
    assert plain.iteration_s == pytest.approx((128 / 275.0,) * 3)
    assert plain.forward_s[0] + plain.backward_s[0] == pytest.approx(plain.iteration_s[0])
    unsure = TableWorld(1, CatalogueFile(speeds=[replace(RESNET, profile_error=0.3)]))
    drawn = [
        128 / unsure.profile(spec(), node("t4"), iterations=1, key=f"{key}").iteration_s[0] / 275.0
        for key in range(200)
    ]
    assert 0.7 <= min(drawn) < 0.75
    assert 1.25 < max(drawn) <= 1.3
    assert unsure.profile(spec(), node("t4"), iterations=1, key="7").iteration_s[0] == pytest.approx(
        128 / 275.0 / drawn[7]
    )
    assert rate(Gang.of({T4: 1}), world=unsure) == pytest.approx(275.0)


GAVEL = read_catalogue(ROOT / "loadgen/catalogue/gavel.yaml")


def batched(batch: int) -> JobSpec:
    workload = Workload(model="resnet18", dataset="cifar10", batch_size=batch, dataset_samples=50_000)
    return JobSpec(name="job", workload=workload, demand=(1, 2), samples=1e6)


def test_speeds_of_one_batch_are_not_those_of_another() -> None:
    world, there = TableWorld(1, GAVEL), [node("v100")]
    for batch, speed in ((16, 517.65), (256, 2636.9)):
        gang = Gang.of({V100: 1})
        assert world.stretch(batched(batch), there, gang, key="p", index=0).throughput == pytest.approx(speed)
    with pytest.raises(DoesNotFit, match=r"cifar10 with batch 100; there are those of batches of 16, 32, 64"):
        world.profile(batched(100), there[0], iterations=1, key="k")


def test_speeds_say_whether_an_exchange_is_of_every_iteration() -> None:
    pair = Gang.of({V100: 2})
    rate_of_two = TableWorld(1, GAVEL).stretch(batched(256), [node("v100")], pair, key="p", index=0)
    exchange_s = 0.5 * 4 * 11.18e6 / 18.75e9
    assert 512 / rate_of_two.throughput == pytest.approx(256 / 2636.9 + exchange_s)


def test_workloads_without_a_speed_do_not_fit() -> None:
    with pytest.raises(DoesNotFit, match=r"no speed of resnet18 on tiny-imagenet on p100"):
        WORLD.profile(spec(), node("p100"), iterations=1, key="k")
    with pytest.raises(DoesNotFit, match=r"no speeds of alexnet on cifar10; there are those of resnet18 on"):
        WORLD.profile(spec(replace(VGG, model="alexnet")), node("t4"), iterations=1, key="k")


def test_a_table_without_speeds_is_refused() -> None:
    with pytest.raises(InvalidCatalogue, match="the world `table` needs speeds"):
        TableWorld(1, NOTHING_MORE)


def test_later_speeds_of_a_model_replace_earlier_ones() -> None:
    faster = replace(RESNET, rates={GpuType("t4"): 300.0})
    whole = merged(CATALOGUE, CatalogueFile(speeds=[faster]))
    assert [one.model for one in whole.speeds] == ["resnet18", "vgg19"]
    assert rate(Gang.of({T4: 1}), world=TableWorld(1, whole)) == pytest.approx(300.0)


def test_a_rota_of_two_takes_the_time_of_both_and_of_the_switches() -> None:
    """On one GPU there is no exchange: a batch of each, and a switch to each."""
    gangs_of = [
        Gang.of({T4: 1}, Relaxed(tasks=((2,),), rota=RotaId("r"), turns=turns, place=turns))
        for turns in (1, 2)
    ]
    rates = WORLD.rota([(spec(), gang) for gang in gangs_of], [node("t4")], key="r", index=1)
    cycle_s = 3 * 2 * spec().workload.batch_size / 275 + 2 * WORLD.switch_s(spec())
    assert rates == pytest.approx([turns * 2 * spec().workload.batch_size / cycle_s for turns in (1, 2)])
