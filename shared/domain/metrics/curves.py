"""Figures over time and distributions: what a report draws. Needs a ledger that kept its runs."""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

from shared.domain.ledger.records import JobRecord, Ledger, Run
from shared.domain.metrics import estimated, span_s
from shared.domain.metrics.fairness import single_gpu_mean

NOTHING = 1e-9
"""what float sums may leave of zero"""


def busy_gpus_curve(ledger: Ledger, step_s: float) -> list[tuple[float, float]]:
    """(time, GPUs held by jobs) every `step_s` from the first submission on."""
    return _curve(
        ledger,
        step_s,
        [(run, float(run.gpus)) for record in ledger.jobs.values() for run in record.runs],
    )


def throughput_curve(ledger: Ledger, step_s: float) -> list[tuple[float, float]]:
    """(time, cluster throughput in single-GPU means); each run at its mean rate."""
    weighted = [
        (run, _rate(ledger, record, run) / single_gpu_mean(record))
        for record in estimated(ledger)
        for run in record.runs
    ]
    return _curve(ledger, step_s, weighted)


def _rate(ledger: Ledger, record: JobRecord, run: Run) -> float:
    """Samples/s that counted."""
    until = ledger.at if run.ended_at is None else run.ended_at
    reached = record.samples_done if run.samples_to is None else run.samples_to
    return (reached - run.samples_from) / (until - run.started_at) if until > run.started_at else 0.0


def _curve(ledger: Ledger, step_s: float, weighted: Sequence[tuple[Run, float]]) -> list[tuple[float, float]]:
    if not ledger.jobs:
        return []
    first, last = span_s(ledger, ledger.at)
    changes = [(run.started_at, weight) for run, weight in weighted]
    changes += [(run.ended_at, -weight) for run, weight in weighted if run.ended_at is not None]
    changes.sort(reverse=True)
    level, curve = 0.0, []
    for step in range(int((last - first) // step_s) + 1):
        at = first + step * step_s
        while changes and changes[-1][0] <= at:
            level += changes.pop()[1]
        curve.append((at, level if level > NOTHING else 0.0))
    return curve


def cdf(values: Iterable[float]) -> list[tuple[float, float]]:
    """(value, share of the values that are not larger), one point a distinct value."""
    ranked = sorted(values)
    points = [(value, (index + 1) / len(ranked)) for index, value in enumerate(ranked)]
    return [point for point, after in pairwise([*points, (math.inf, 1.0)]) if point[0] != after[0]]
