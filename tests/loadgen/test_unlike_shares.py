"""What gangs of unlike shares do on the emulated world: near Σ speeds, and below, by what was worked out."""

import pytest
from msgspec.structs import replace

from loadgen.catalogue.specs import catalogue_with, shipped
from loadgen.catalogue.timing import compute, iteration_s, loading
from loadgen.world import EmulatedWorld
from loadgen.world.communication import all_reduce_s
from loadgen.world.structure import PLAIN
from schemas.catalogue import CatalogueFile, Model
from schemas.cluster import Node
from schemas.ids import GpuType, NodeId
from schemas.jobs import JobSpec, Workload
from schemas.placement import Gang, Proportional
from services.agent.work.world import DoesNotFit
from shared.domain import gangs

T4, V100 = NodeId("t4"), NodeId("v100")
PLACE = {T4: 2, V100: 1}
SHIPPED = shipped()
NO_TIME = 1e-15
WORKED_OUT = CatalogueFile(
    models=[
        replace(SHIPPED.models["resnet18", "tiny-imagenet"], efficiency=0.65, loop=0.0),
        replace(SHIPPED.models["vgg19", "cifar10"], efficiency=0.45, loop=0.0),
    ],
    gpus={
        GpuType("t4"): replace(
            SHIPPED.gpu_of(GpuType("t4")), sustained=0.6, convolutions=1.0, kernel=NO_TIME
        ),
        GpuType("v100"): replace(SHIPPED.gpu_of(GpuType("v100")), kernel=NO_TIME),
    },
)
"""the facts that the figures below were worked out from: a later catalogue changes none of them"""
KNOWN = catalogue_with(WORKED_OUT)
RESNET = KNOWN.models["resnet18", "tiny-imagenet"]
VGG = KNOWN.models["vgg19", "cifar10"]


def node(name: NodeId) -> Node:
    return Node(
        node_id=name,
        gpu_type=GpuType(name),
        gpus=5,
        server="compute-canada",
        link_bandwidth=16e9,
        network_bandwidth=0.53e9,
    )


def own_s(model: Model, name: NodeId, batch: int, exchange_s: float) -> float:
    """An iteration of one GPU, without noise and on a server like its like."""
    server = KNOWN.server_of("compute-canada")
    times = compute(model, KNOWN.gpu_of(GpuType(name)), batch, server.speed)
    data = loading(
        KNOWN.dataset_of(model), server, batch=batch, gpus=5, step_s=times.total_s, speed=server.speed
    )
    tail_s = min(PLAIN.bucket_bytes / model.gradient_bytes, 1.0) * exchange_s
    backward_s = max(times.backward_s + tail_s, PLAIN.head * times.backward_s + exchange_s)
    return iteration_s(model.pattern, data.mean_s, replace(times, backward_s=backward_s))


def rate(model: Model, gang: Gang, *, exchanging: bool = True) -> float:
    """samples/s of the gang."""
    ring = [(node(one.node), one.gpus) for one in gang.members]
    exchange_s = all_reduce_s(ring, model.gradient_bytes, (1.0, 1.0), 0.0) if exchanging else 0.0
    taken = zip(gang.nodes, gangs.batches(gang, model.batch), strict=True)
    slowest_s = max(own_s(model, name, batch, exchange_s) for name, each in taken for batch in each)
    return gangs.global_batch(gang, model.batch) / slowest_s


def shared(model: Model) -> Gang:
    """Samples as speeds are."""
    return gangs.proportional(
        PLACE, {name: model.batch / own_s(model, name, model.batch, 0.0) for name in PLACE}, model.batch
    )


@pytest.mark.parametrize(
    ("model", "found", "computing", "alike"),
    [(RESNET, 1079.0, 1236.0, 701.0), (VGG, 370.4, 2980.3, 360.3)],
)
def test_rates_of_unlike_shares_are_those_worked_out_by_hand(
    model: Model, found: float, computing: float, alike: float
) -> None:
    """JPS, example E6: an exchange in every iteration leaves little of a large model's gain."""
    gang = shared(model)
    assert gang.sync == Proportional(samples=(157, 227))
    assert rate(model, gang) == pytest.approx(found, abs=0.05)
    assert rate(model, gang, exchanging=False) == pytest.approx(computing, abs=0.05)
    assert rate(model, Gang.of(PLACE)) == pytest.approx(alike, abs=0.05)


def test_a_batch_that_a_profile_proves_to_fit_runs() -> None:
    """ResNet-50 on ImageNet, 89 MB a sample: more than a batch surely fits, though less than what fits."""
    large = KNOWN.models["resnet50", "imagenet"]
    workload = Workload(model=large.model, dataset=large.dataset, batch_size=64)
    spec = JobSpec(name="job", workload=workload, demand=(2,), samples=1e6)
    world, pair = EmulatedWorld(1, WORKED_OUT), [node(T4), node(V100)]
    measured = world.profile(spec, pair[1], iterations=3, key="p")
    assert measured.memory_share is not None
    most = gangs.batch_most(64, measured.memory_share)
    assert 64 < most < 2 * 128
    gang = Gang.of({T4: 1, V100: 1}, Proportional(samples=(128 - min(most, 127), min(most, 127))))
    assert world.stretch(spec, pair, gang, key="p", index=0).throughput > 0
    over = Gang.of({T4: 1, V100: 1}, Proportional(samples=(1, 3 * 64)))
    with pytest.raises(DoesNotFit, match="out of memory"):
        world.stretch(spec, pair, over, key="p", index=0)


def test_the_world_runs_so_but_for_its_noise_and_its_servers_ways() -> None:
    workload = Workload(model=RESNET.model, dataset=RESNET.dataset, batch_size=RESNET.batch)
    spec = JobSpec(name="job", workload=workload, demand=(3,), samples=1e6)
    for gang in (shared(RESNET), Gang.of(PLACE)):
        nodes = [node(name) for name in gang.nodes]
        rates = [
            EmulatedWorld(seed, WORKED_OUT).stretch(spec, nodes, gang, key="p", index=0).throughput
            for seed in range(40)
        ]
        assert sum(rates) / len(rates) == pytest.approx(rate(RESNET, gang), rel=0.06)
