"""The catalogue: every row whole, and its arithmetic near what the papers measured."""

import pytest

from loadgen.catalogue.reference import FitsNowhere, largest_gang, reference_throughput
from loadgen.catalogue.specs import UnknownWorkload, shipped
from loadgen.scenarios import cluster_names, load_cluster
from loadgen.workloads.mixes import hints
from schemas.cluster import ClusterFile, GpuTypeFile, NodeGroup
from schemas.ids import GpuType
from schemas.jobs import Workload

KNOWN = shipped()


def cluster(gpu_type: str, gpus: int = 4, count: int = 1, server: str = "generic") -> ClusterFile:
    name = GpuType(gpu_type)
    return ClusterFile(
        name="test",
        gpu_types={name: GpuTypeFile(link_bandwidth=1e9, network_bandwidth=1e9)},
        nodes=[NodeGroup(prefix="n", count=count, gpus=gpus, gpu_type=name, server=server)],
    )


def test_every_row_says_where_it_comes_from() -> None:
    sources = [
        *(row.source for row in KNOWN.models.values()),
        *(row.source for row in KNOWN.datasets.values()),
        *(row.source for row in KNOWN.gpus.values()),
        *(row.source for row in KNOWN.servers.values()),
        *(mix.source for mix in KNOWN.mixes.values()),
    ]

    assert all(sources)


def test_every_model_trains_on_a_described_data_set() -> None:
    assert {dataset for _, dataset in KNOWN.models} <= set(KNOWN.datasets)


def test_every_mix_and_every_hint_names_models_of_the_catalogue() -> None:
    named = {(entry.model, entry.dataset) for mix in KNOWN.mixes.values() for entry in mix.jobs}

    assert named | set(hints().values()) <= set(KNOWN.models)
    assert all(entry.size in mix.sizes for mix in KNOWN.mixes.values() for entry in mix.jobs)


def test_every_shipped_cluster_is_made_of_known_gpus_and_servers() -> None:
    groups = [group for name in cluster_names() for group in load_cluster(name).nodes]

    assert {group.gpu_type for group in groups} <= set(KNOWN.gpus)
    assert {group.server for group in groups} <= set(KNOWN.servers)


@pytest.mark.parametrize(
    ("model", "dataset", "gpu_type", "measured"),
    [
        ("resnet18", "tiny-imagenet", "t4", 275),
        ("resnet18", "tiny-imagenet", "v100", 644),
        ("vgg19", "cifar10", "t4", 884),
        ("vgg19", "cifar10", "v100", 1754),
    ],
)
def test_reference_speeds_are_near_those_that_jps_measured(
    model: str, dataset: str, gpu_type: str, measured: float
) -> None:
    rate = reference_throughput(
        KNOWN.models[model, dataset], cluster(gpu_type, server="compute-canada"), KNOWN
    )

    assert rate == pytest.approx(measured, rel=0.2)


def test_a_model_is_measured_only_on_gpus_that_hold_it() -> None:
    big = KNOWN.models["resnet50", "imagenet"]

    assert largest_gang(big, load_cluster("hops-64"), KNOWN) == 32
    with pytest.raises(FitsNowhere, match="resnet50 with batch 128"):
        reference_throughput(big, cluster("gtx-1080-ti"), KNOWN)


def test_what_is_not_in_the_catalogue_is_named() -> None:
    with pytest.raises(UnknownWorkload, match="mlp on mnist"):
        KNOWN.model_of(Workload(model="mlp", dataset="mnist", batch_size=1))
    with pytest.raises(UnknownWorkload, match=r"no bert on squad; it has bert-base on squad"):
        KNOWN.model_of(Workload(model="bert", dataset="squad", batch_size=1))
    with pytest.raises(UnknownWorkload, match=r"it has resnet101 on cifar10$"):
        KNOWN.model_of(Workload(model="resnet101", dataset="mnist", batch_size=1))
    with pytest.raises(UnknownWorkload, match="abacus"):
        KNOWN.gpu_of(GpuType("abacus"))


def test_a_server_nobody_described_is_generic() -> None:
    assert KNOWN.server_of("attic") == KNOWN.servers["generic"]
