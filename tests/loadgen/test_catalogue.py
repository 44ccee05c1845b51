"""The catalogue: every row whole, and its arithmetic near what the papers measured."""

import pytest

from loadgen.catalogue.measured import Compared, compared, ranked_alike, typical_factor
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


COMPARED = compared(KNOWN)


def of(part: str) -> list[Compared]:
    return [row for row in COMPARED if row.measured.part == part]


def test_speeds_are_near_published_ones_even_where_none_was_fitted() -> None:
    assert typical_factor(of("fit")) < 1.25
    assert typical_factor(of("held")) < 1.3
    assert all(0.3 < row.ratio < 3.0 for row in COMPARED)


def test_every_other_batch_of_a_series_is_held_and_a_whole_table() -> None:
    series: dict[tuple[str, ...], list[Compared]] = {}
    for row in COMPARED:
        one = row.measured
        series.setdefault((one.table, one.model, one.dataset, one.gpu), []).append(row)
    for (table, *_), rows in series.items():
        batches = [row.measured.batch for row in rows]
        assert batches == sorted(set(batches))
        held = [row.measured.part == "held" for row in rows]
        if table == "elasticflow":
            assert all(held)
        elif len(held) > 1:
            assert held == [index % 2 == 1 for index in range(len(held))]


def test_gpu_types_rank_as_measured() -> None:
    alike, pairs = ranked_alike(COMPARED)

    assert pairs > 50
    assert alike > 0.85 * pairs


def test_models_differ_in_their_gain_from_a_faster_gpu() -> None:
    """Gavel: a recommender is slower on the host of a V100 than on that of a P100; CycleGAN gains most."""

    def gain(model: str, batch: int) -> float:
        rates = {
            row.measured.gpu: row.ours
            for row in COMPARED
            if (row.measured.table, row.measured.model, row.measured.batch) == ("gavel", model, batch)
        }
        return rates[GpuType("v100")] / rates[GpuType("p100")]

    assert gain("recommendation", 2048) < 0.7
    assert gain("resnet18", 16) < 1.3
    assert gain("cyclegan", 1) > 1.4


def test_a_model_is_measured_only_on_gpus_that_hold_it() -> None:
    big = KNOWN.models["resnet50", "imagenet"]

    assert largest_gang(big, load_cluster("hops-64"), KNOWN) == 32
    with pytest.raises(FitsNowhere, match="resnet50 with batch 128"):
        reference_throughput(big, cluster("gtx-1080-ti"), KNOWN)


def test_an_unknown_workload_is_refused_by_name() -> None:
    with pytest.raises(UnknownWorkload, match="mlp on mnist"):
        KNOWN.model_of(Workload(model="mlp", dataset="mnist", batch_size=1))
    with pytest.raises(UnknownWorkload, match=r"no bert on squad; it has bert-base on squad"):
        KNOWN.model_of(Workload(model="bert", dataset="squad", batch_size=1))
    with pytest.raises(UnknownWorkload, match=r"it has resnet101 on cifar10$"):
        KNOWN.model_of(Workload(model="resnet101", dataset="mnist", batch_size=1))
    with pytest.raises(UnknownWorkload, match="abacus"):
        KNOWN.gpu_of(GpuType("abacus"))


def test_a_server_without_a_description_is_generic() -> None:
    assert KNOWN.server_of("attic") == KNOWN.servers["generic"]
