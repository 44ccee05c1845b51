"""Figures about merged copies of a model: how many merges, how far apart, how unequal. Pure.

Averaging after unequal numbers of local steps is known to bias the optimum (FedNova, NeurIPS 2020); these
figures say how much of that a run had, and nothing about a model's quality.
"""

import msgspec

from shared.domain.ledger.records import RunSums


class Merging(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one job, or of many; None where nothing was merged."""

    merges: int
    """means taken of the weights of two copies or more"""
    steps_mean: float | None
    """optimizer steps of a copy from one merge to the next, over all copies"""
    steps_max: float | None
    share_max: float | None
    """the largest share of one copy in the samples of all copies between two merges"""


def merging(runs: RunSums) -> Merging:
    return Merging(
        merges=runs.merges,
        steps_mean=runs.steps / runs.copies if runs.copies else None,
        steps_max=runs.steps_max if runs.copies else None,
        share_max=runs.share_max if runs.merges else None,
    )
