"""How fast a model trains on one GPU of a cluster, by public facts alone: the measure of a job's size."""

from loadgen.catalogue.specs import Catalogue
from loadgen.catalogue.timing import compute, fits, iteration_s, loading
from schemas.catalogue import Dataset, Gpu, Model, Server
from schemas.cluster import ClusterFile, NodeGroup
from shared.domain.sums import plain_sum


class FitsNowhere(ValueError):
    """No GPU of the cluster has the memory."""


def reference_throughput(model: Model, cluster: ClusterFile, catalogue: Catalogue) -> float:
    """Samples/s on one GPU: the mean over the cluster's GPUs on which the model fits. Raises FitsNowhere."""
    rates = [
        (group.count * group.gpus, _throughput(model, group, catalogue))
        for group in cluster.nodes
        if fits(model, catalogue.gpu_of(group.gpu_type), model.batch)
    ]
    if not rates:
        raise FitsNowhere(f"{model.model} with batch {model.batch} fits on no GPU of {cluster.name}")
    return plain_sum(gpus * rate for gpus, rate in rates) / sum(gpus for gpus, _ in rates)


def largest_gang(model: Model, cluster: ClusterFile, catalogue: Catalogue) -> int:
    """GPUs of the most numerous type on which the model fits; 0 where it fits on none.

    Drawn jobs ask for no more, though a gang may mix types: one policy's workload is every policy's.
    """
    counts: dict[str, int] = {}
    for group in cluster.nodes:
        if fits(model, catalogue.gpu_of(group.gpu_type), model.batch):
            counts[group.gpu_type] = counts.get(group.gpu_type, 0) + group.count * group.gpus
    return max(counts.values(), default=0)


def _throughput(model: Model, group: NodeGroup, catalogue: Catalogue) -> float:
    gpu, server = catalogue.gpu_of(group.gpu_type), catalogue.server_of(group.server)
    return throughput(model, gpu, server, catalogue.dataset_of(model), gpus=group.gpus)


def throughput(model: Model, gpu: Gpu, server: Server, dataset: Dataset, *, gpus: int) -> float:
    """Samples/s of one GPU that has its share of a server with `gpus` GPUs."""
    times = compute(model, gpu, model.batch, server.speed)
    data = loading(dataset, server, batch=model.batch, gpus=gpus, step_s=times.total_s, speed=server.speed)
    hit_s = iteration_s(model.pattern, data.hit_s, times)
    miss_s = iteration_s(model.pattern, data.miss_s, times)
    return model.batch / (hit_s + data.miss_share * (miss_s - hit_s))
