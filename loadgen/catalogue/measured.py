"""Published measurements on one GPU, compared with the catalogue's arithmetic.

The file has a row for each measured batch. A row is of the part `fit` if an entry of the catalogue was fitted
to it, else of `held`. The split was made before: of every series of batches the second, fourth … are held;
of single measurements those on P100 and T4, NVIDIA's and those of Inception; and all of ElasticFlow's.
"""

import csv
from collections.abc import Iterable, Sequence
from importlib import resources
from math import exp, log
from statistics import fmean
from typing import Literal

import msgspec

from loadgen.catalogue.reference import throughput
from loadgen.catalogue.specs import Catalogue
from schemas.ids import GpuType

Part = Literal["fit", "held"]


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """Samples/s of one GPU, the others of its server being idle or in like use."""

    table: str
    model: str
    dataset: str
    gpu: GpuType
    server: str
    gpus: int
    """GPUs of the server"""
    batch: int
    samples_s: float
    part: Part


class Compared(msgspec.Struct, frozen=True):
    measured: Measurement
    ours: float
    """samples/s"""

    @property
    def ratio(self) -> float:
        return self.ours / self.measured.samples_s


def measurements() -> list[Measurement]:
    text = resources.files(__package__).joinpath("measured.csv").read_text("utf-8")
    return [msgspec.convert(row, Measurement, strict=False) for row in csv.DictReader(text.splitlines())]


def compared(known: Catalogue) -> list[Compared]:
    return [Compared(one, modelled(one, known)) for one in measurements()]


def modelled(one: Measurement, known: Catalogue) -> float:
    """Samples/s by the catalogue."""
    row = known.models[one.model, one.dataset]
    model = msgspec.structs.replace(row, batch=one.batch)
    return throughput(
        model, known.gpu_of(one.gpu), known.server_of(one.server), known.dataset_of(row), gpus=one.gpus
    )


def typical_factor(rows: Iterable[Compared]) -> float:
    """The factor by which the catalogue is off, in either direction: geometric mean."""
    return exp(fmean(abs(log(one.ratio)) for one in rows))


def mean_ratio(rows: Iterable[Compared]) -> float:
    """The geometric mean of the ratios."""
    return exp(fmean(log(one.ratio) for one in rows))


def ranked_alike(rows: Sequence[Compared]) -> tuple[int, int]:
    """The number of pairs of GPU types that the catalogue ranks as measured, and the number of all pairs.

    A pair is of one model and batch in one table. Types measured within a tenth of one another are no pair.
    """
    alike = pairs = 0
    for index, one in enumerate(rows):
        for other in rows[index + 1 :]:
            if _setting(one) != _setting(other) or one.measured.gpu == other.measured.gpu:
                continue
            apart = log(one.measured.samples_s / other.measured.samples_s)
            if abs(apart) > log(1.1):
                pairs += 1
                alike += apart * log(one.ours / other.ours) > 0
    return alike, pairs


def _setting(one: Compared) -> tuple[str, str, str, int]:
    return one.measured.table, one.measured.model, one.measured.dataset, one.measured.batch
