"""How much of the cluster was used, and for how long: GRU, CRU, cluster throughput. Pure.

GRU and CRU are of the whole time since the first submission, as busy time is added up: jobs that the ledger
no longer keeps count too.
"""

import math
from collections.abc import Callable

from shared.domain.ledger import Ledger
from shared.domain.ledger.records import JobRecord, NodeRecord
from shared.domain.metrics.fairness import single_gpu_mean
from shared.domain.sums import plain_sum

ROUNDING = 1e-6
"""share of a round: a shorter rest does not count as a further round"""


def gru(ledger: Ledger, now: float) -> float | None:
    """Busy GPU time / available GPU time; a lost node's GPUs and withheld ones are not available."""
    nodes = ledger.nodes.values()
    busy = plain_sum(node.gpu_busy_s + _unsettled_s(node, now) * node.available_in_use for node in nodes)
    return _use(ledger, now, busy, lambda gpus: gpus)


def cru(ledger: Ledger, now: float) -> float | None:
    """Time of nodes with a busy GPU / time of nodes (Hadar's definition)."""
    nodes = ledger.nodes.values()
    busy = plain_sum(node.busy_s + _unsettled_s(node, now) for node in nodes)
    return _use(ledger, now, busy, lambda _: 1)


def cru_slots(ledger: Ledger, now: float, round_s: float) -> float | None:
    """CRU over whole rounds, from the first submission to the end of the last round (as Hadar prints it).

    A round in which the last job ends counts in full.
    """
    if not ledger.jobs:
        return None
    first, last = _whole_span_s(ledger, now)
    rounds = math.ceil((last - first) / round_s - ROUNDING)
    nodes = ledger.nodes.values()
    busy = plain_sum(node.busy_s + _unsettled_s(node, now) for node in nodes)
    use = _share(busy, len(nodes) * round_s * rounds)
    return None if use is None else min(use, 1.0)


def _use(ledger: Ledger, now: float, busy_s: float, weight: Callable[[int], int]) -> float | None:
    """`weight`: of a node's time, by the GPUs that jobs could get there."""
    if not ledger.jobs:
        return None
    span = _whole_span_s(ledger, now)
    there = plain_sum(_up_s(node, span, weight) for node in ledger.nodes.values())
    use = _share(busy_s, there)
    return None if use is None else min(use, 1.0)  # the last gang's workers end after its job did


def cluster_throughput_mean(ledger: Ledger, now: float) -> float | None:
    """Σ over jobs of samples/s ÷ single-GPU mean, averaged over the span.

    The integral of throughput is the number of samples, so no sampling interval enters. Samples count
    once they are in a checkpoint or the job is complete; what had to be recomputed counts once. None while
    jobs train and none has saved anything: what they have done is not known yet.
    """
    if not ledger.jobs:
        return None
    first, last = span_s(ledger, now)
    work = plain_sum(record.samples_done / single_gpu_mean(record) for record in estimated(ledger))
    if not work and any(record.present for record in ledger.jobs.values()):
        return None
    return _share(work, last - first)


def cluster_throughput_now(ledger: Ledger) -> float:
    """Σ over running jobs of samples/s, as estimated when placed, ÷ single-GPU mean."""
    running = ((record, record.present) for record in estimated(ledger))
    return plain_sum((run.throughput or 0.0) / single_gpu_mean(record) for record, run in running if run)


# ---- the span of a workload


def span_s(ledger: Ledger, now: float) -> tuple[float, float]:
    """From the first submission to the last end, or to `now` while jobs are unfinished. Needs a job."""
    ends = [record.ended_at for record in ledger.jobs.values()]
    finished = [end for end in ends if end is not None]
    first = first_submission(ledger)
    last = max(finished) if len(finished) == len(ends) else now
    return first, max(first, last)


def _whole_span_s(ledger: Ledger, now: float) -> tuple[float, float]:
    """As `span_s`, but from the first submission of all, whether its job is kept or not."""
    first, last = span_s(ledger, now)
    return first if ledger.first_submitted_at is None else min(ledger.first_submitted_at, first), last


def first_submission(ledger: Ledger) -> float:
    return min(record.submitted_at for record in ledger.jobs.values())


def estimated(ledger: Ledger) -> list[JobRecord]:
    """The jobs whose single-GPU speeds are known."""
    return [record for record in ledger.jobs.values() if record.single_gpu]


def _unsettled_s(node: NodeRecord, now: float) -> float:
    """Seconds of use that are not added up yet."""
    return max(now - node.settled_at, 0.0) if node.alive and node.workers else 0.0


def _up_s(node: NodeRecord, span: tuple[float, float], weight: Callable[[int], int]) -> float:
    """Weighted seconds of the span in which the node was alive."""
    first, last = span
    now = (node.up_since, last, node.node.gpus, node.whole.gpu_type)
    spells = [*node.up, now] if node.alive else node.up
    return plain_sum(weight(gpus) * up_s for gpus, up_s in node.up_before_s.items()) + plain_sum(
        weight(gpus) * max(min(end, last) - max(start, first), 0.0) for start, end, gpus, _ in spells
    )


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None
