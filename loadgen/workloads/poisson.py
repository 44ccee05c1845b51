"""Jobs drawn from a mix, arriving as a Poisson process."""

import numpy as np

from loadgen.catalogue.specs import Catalogue
from loadgen.draws import generator
from loadgen.workloads.jobs import HOUR_S, ReferenceCache, demand, job_file, named
from loadgen.workloads.mixes import dealt, mix_named
from loadgen.workloads.sizes import gpu_hours
from schemas.catalogue import Mix, MixEntry
from schemas.cluster import ClusterFile
from schemas.scenarios import Arrival, PoissonWorkload


def poisson_arrivals(
    workload: PoissonWorkload, cluster: ClusterFile, seed: int, catalogue: Catalogue | None = None
) -> list[Arrival]:
    """`workload.count` jobs in order of arrival. Raises UnknownMix, FitsNowhere."""
    mix, reference = mix_named(workload.mix, catalogue), ReferenceCache(cluster, catalogue)
    entries = _entries(mix, workload.count, generator(seed, "models"))
    sizes = gpu_hours(
        [mix.size_of(entry) for entry in entries],
        generator(seed, "sizes").random(workload.count),
        workload.gpu_hours_mean,
    )
    gap_s = HOUR_S / workload.rate_per_hour if workload.rate_per_hour else 0.0
    gaps = generator(seed, "arrivals").exponential(gap_s, workload.count)
    random = generator(seed, "demand")
    return [
        Arrival(
            at_s=float(at_s),
            job=job_file(
                named(reference.spec(entry), index),
                reference.spec(entry),
                gpu_hours=float(hours),
                gpus=demand(mix, entry, float(hours), reference, random),
                reference=reference,
            ),
        )
        for index, (at_s, entry, hours) in enumerate(zip(np.cumsum(gaps), entries, sizes, strict=True))
    ]


def _entries(mix: Mix, count: int, random: np.random.Generator) -> list[MixEntry]:
    """Entries in shuffled order, each as often as its weight says, to within one.

    Systematic sampling, so that a workload of 25 jobs holds the whole table and not the luck of the draw.
    """
    places = (np.arange(count) + random.random()) / count
    return [dealt(mix, place) for place in random.permutation(places).tolist()]
