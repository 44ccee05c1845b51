"""A job file from a draw: model, GPU-hours and GPU counts become samples, learning rate and demand."""

import math
import re
from typing import Literal

import numpy as np

from loadgen.catalogue.reference import largest_gang, reference_throughput
from loadgen.catalogue.specs import Catalogue, shipped
from schemas.catalogue import Mix, MixEntry, Model
from schemas.cluster import ClusterFile
from schemas.jobs import JobFile, LearningRate, Workload

HOUR_S = 3600.0
RULES: dict[str, Literal["linear", "sqrt"]] = {"sgd": "linear", "adam": "sqrt", "adamw": "sqrt"}
"""how a learning rate follows the global batch: Goyal et al. 2017 for SGD, Krizhevsky 2014 for the others"""

NAME_LENGTH_MAX = 63
_NOT_IN_NAMES = re.compile("[^a-z0-9-]+")


class ReferenceCache:
    """Reference throughput and largest gang of each model on one cluster, each computed once."""

    def __init__(self, cluster: ClusterFile, catalogue: Catalogue | None = None) -> None:
        """`catalogue`: by default the shipped one."""
        self.catalogue = catalogue or shipped()
        self._cluster = cluster
        self._rates: dict[Model, float] = {}
        self._gangs: dict[Model, int] = {}

    def spec(self, entry: MixEntry) -> Model:
        return self.catalogue.models[entry.model, entry.dataset]

    def rate(self, model: Model) -> float:
        """Samples/s on one GPU, mean over the cluster. Raises FitsNowhere."""
        if model not in self._rates:
            self._rates[model] = reference_throughput(model, self._cluster, self.catalogue)
        return self._rates[model]

    def most_gpus(self, entry: MixEntry) -> int:
        """The most GPUs that a job of the entry may ask for: of one type that its model fits, at least 1."""
        most = max(self._largest_gang(self.spec(entry)), 1)
        return most if entry.gpus_most is None else min(most, entry.gpus_most)

    def _largest_gang(self, model: Model) -> int:
        if model not in self._gangs:
            self._gangs[model] = largest_gang(model, self._cluster, self.catalogue)
        return self._gangs[model]


def job_file(
    name: str, model: Model, *, gpu_hours: float, gpus: list[int], reference: ReferenceCache
) -> JobFile:
    """Raises FitsNowhere."""
    return JobFile(
        name=name,
        workload=Workload(
            model=model.model,
            dataset=model.dataset,
            batch_size=model.batch,
            optimizer=model.optimizer,
            dataset_samples=min(reference.catalogue.dataset_of(model).samples, 100_000_000),
        ),
        gpus=gpus,
        samples=max(float(round(gpu_hours * HOUR_S * reference.rate(model))), 1.0),
        learning_rate=LearningRate(value=model.learning_rate, rule=RULES[model.optimizer]),
    )


def demand(
    mix: Mix, entry: MixEntry, gpu_hours: float, reference: ReferenceCache, random: np.random.Generator
) -> list[int]:
    """Some of the GPU counts of the job's class; with the largest it can end within `longest_h`."""
    limit = reference.most_gpus(entry)
    size = mix.size_of(entry)
    low, high = (min(bound, limit) for bound in size.gpus)
    fewest, most = (min(bound, high - low + 1) for bound in size.choices)
    listed = int(random.integers(fewest, most, endpoint=True))
    counts = random.choice(np.arange(low, high + 1), size=listed, replace=False)
    needed = min(math.ceil(gpu_hours / mix.longest_h), high)
    if counts.max() < needed:
        counts[0] = random.integers(needed, high, endpoint=True)
    return sorted({int(count) for count in counts})


def named(model: Model, index: int) -> str:
    """A valid name of a job, whatever the model and its data set are called."""
    end = f"-{index:04d}"
    stem = _NOT_IN_NAMES.sub("-", f"{model.model}-{model.dataset}".lower()).lstrip("-")
    return stem[: NAME_LENGTH_MAX - len(end)] + end
