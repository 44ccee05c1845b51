"""Figures about merged copies of a model: how many merges, how far apart, how unequal. Pure.

Averaging after unequal numbers of local steps is known to bias the optimum (FedNova, NeurIPS 2020); these
figures say how much of that a run had, and nothing about a model's quality.
"""

from collections.abc import Iterable, Iterator

import msgspec

from shared.domain.ledger.records import JobRecord, Run
from shared.domain.sums import plain_sum


class Merging(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one job, or of many; None where nothing was merged."""

    merges: int
    """means taken of the weights of two copies or more"""
    steps_mean: float | None
    """optimizer steps of a copy from one merge to the next, over all copies"""
    steps_max: float | None
    share_max: float | None
    """the largest share of one copy in the samples of all copies between two merges"""


def merging(records: Iterable[JobRecord]) -> Merging:
    merged = [
        (record.spec.workload.batch_size, run) for record in records for run in record.runs if run.merged
    ]
    steps = [count for batch_size, run in merged for count in _steps(run, batch_size)]
    return Merging(
        merges=len(merged),
        steps_mean=plain_sum(steps) / len(steps) if steps else None,
        steps_max=max(steps, default=None),
        share_max=max(
            (max(run.copies.values()) / plain_sum(run.copies.values()) for _, run in merged), default=None
        ),
    )


def _steps(run: Run, batch_size: int) -> Iterator[float]:
    return (samples / (batch_size * run.gang.on(node)) for node, samples in run.copies.items())
