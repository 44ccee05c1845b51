"""Figures over time and distributions: what a report draws. Needs a ledger that kept its runs.

A curve is (time, value) every `step_s` from the first submission on.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from schemas.ids import NodeId
from shared.domain.ledger.records import JobRecord, Ledger, NodeRecord, Run
from shared.domain.metrics.fairness import single_gpu_mean
from shared.domain.metrics.use import estimated, span_s

NOTHING = 1e-9
"""what float sums may leave of zero"""

Curve = list[tuple[float, float]]
Spell = tuple[float, float, float]
"""from, to (inf while it goes on), and what it adds meanwhile"""


def busy_gpus_curve(ledger: Ledger, step_s: float) -> Curve:
    """GPUs held by jobs."""
    return _curve(ledger, step_s, [_spell(run, run.gpus) for _, run in _runs(ledger)])


def throughput_curve(ledger: Ledger, step_s: float) -> Curve:
    """Cluster throughput in single-GPU means; each run at its mean rate."""
    weighted = [
        _spell(run, _rate(ledger, record, run) / single_gpu_mean(record))
        for record in estimated(ledger)
        for run in record.runs
    ]
    return _curve(ledger, step_s, weighted)


def gru_curve(ledger: Ledger, step_s: float) -> Curve:
    """GPUs held by jobs / GPUs of the nodes alive; 0 while there are none."""
    there = [spell for node in ledger.nodes.values() for spell in _alive(node, node.node.gpus)]
    return _ratio(busy_gpus_curve(ledger, step_s), _curve(ledger, step_s, there))


def cru_curve(ledger: Ledger, step_s: float) -> Curve:
    """Nodes with a GPU held by a job / nodes alive; 0 while there are none (Hadar's definition)."""
    held: dict[NodeId, list[Spell]] = {}
    for _, run in _runs(ledger):
        for node_id in run.configuration:
            held.setdefault(node_id, []).append(_spell(run, 1.0))
    busy = [spell for spells in held.values() for spell in _merged(spells)]
    there = [spell for node in ledger.nodes.values() for spell in _alive(node, 1.0)]
    return _ratio(_curve(ledger, step_s, busy), _curve(ledger, step_s, there))


def cdf(values: Iterable[float]) -> Curve:
    """(value, share of the values that are not larger), one point a distinct value."""
    ranked = sorted(values)
    points = [(value, (index + 1) / len(ranked)) for index, value in enumerate(ranked)]
    return [point for point, after in pairwise([*points, (math.inf, 1.0)]) if point[0] != after[0]]


# ---- what curves are made of


def _runs(ledger: Ledger) -> Iterator[tuple[JobRecord, Run]]:
    return ((record, run) for record in ledger.jobs.values() for run in record.runs)


def _spell(run: Run, weight: float) -> Spell:
    return run.started_at, math.inf if run.ended_at is None else run.ended_at, weight


def _alive(node: NodeRecord, weight: float) -> Iterator[Spell]:
    yield from ((start, end, weight) for start, end in node.up)
    if node.alive:
        yield node.up_since, math.inf, weight


def _merged(spells: Iterable[Spell]) -> Iterator[Spell]:
    """Spells of weight 1 that overlap, as one."""
    begun, until = math.inf, -math.inf
    for start, end, _ in sorted(spells):
        if start > until:
            if begun < until:
                yield begun, until, 1.0
            begun = start
        until = max(until, end)
    if begun < until:
        yield begun, until, 1.0


def _rate(ledger: Ledger, record: JobRecord, run: Run) -> float:
    """Samples/s that counted."""
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


def _ratio(part: Curve, whole: Curve) -> Curve:
    return [
        (at, value / total if total else 0.0) for (at, value), (_, total) in zip(part, whole, strict=True)
    ]
