"""Figures over time and distributions, for the drawings of a report. They need a ledger that kept its runs.

A curve over time is a (time, value) every `step_s` from the first submission on.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

from shared.domain.ledger.records import JobRecord, Ledger, Run
from shared.domain.metrics.fairness import single_gpu_mean
from shared.domain.metrics.use import estimated, span_s

NOTHING = 1e-9
"""sums of floats below this count as 0"""

Curve = list[tuple[float, float]]
Spell = tuple[float, float, float]
"""beginning, end (inf while it goes on), and the value that it adds in between"""


def busy_gpus_curve(ledger: Ledger, step_s: float) -> Curve:
    """GPUs held by jobs."""
    held = [_spell(run, run.gpus) for record in ledger.jobs.values() for run in record.runs]
    return _curve(ledger, step_s, held)


def throughput_curve(ledger: Ledger, step_s: float) -> Curve:
    """Cluster throughput in single-GPU means; each run counts at its mean rate."""
    weighted = [
        _spell(run, _rate(ledger, record, run) / single_gpu_mean(record))
        for record in estimated(ledger)
        for run in record.runs
    ]
    return _curve(ledger, step_s, weighted)


def cdf(values: Iterable[float]) -> Curve:
    """(value, share of the values that are not larger), one point a distinct value."""
    ranked = sorted(values)
    points = [(value, (index + 1) / len(ranked)) for index, value in enumerate(ranked)]
    return [point for point, after in pairwise([*points, (math.inf, 1.0)]) if point[0] != after[0]]


# ---- what curves are made of


def _spell(run: Run, weight: float) -> Spell:
    return run.started_at, math.inf if run.ended_at is None else run.ended_at, weight


def _rate(ledger: Ledger, record: JobRecord, run: Run) -> float:
    """Samples/s of a run, of the samples that counted."""
    until = ledger.at if run.ended_at is None else run.ended_at
    reached = record.samples_done if run.samples_to is None else run.samples_to
    return (reached - run.samples_from) / (until - run.started_at) if until > run.started_at else 0.0


def _curve(ledger: Ledger, step_s: float, spells: Sequence[Spell]) -> Curve:
    if not ledger.jobs:
        return []
    first, last = span_s(ledger, ledger.at)
    changes = [(start, weight) for start, _, weight in spells]
    changes += [(end, -weight) for _, end, weight in spells]
    changes.sort(reverse=True)
    level, curve = 0.0, []
    for step in range(int((last - first) // step_s) + 1):
        at = first + step * step_s
        while changes and changes[-1][0] <= at:
            level += changes.pop()[1]
        curve.append((at, level if level > NOTHING else 0.0))
    return curve
