"""Where time and GPUs went: what a difference between policies is explained from. Pure.

| row                        | what                                                                    |
|----------------------------|-------------------------------------------------------------------------|
| wait for the first start   | first start − submission, mean over started jobs                        |
| wait after it              | not running from then on, later starts included, mean over started jobs |
| GPUs of a running job      | mean over the time that jobs ran                                        |
| distributed                | share of the GPU time on more than one node                             |
| GPU time of a job          | held while it ran, mean over jobs                                       |
| work of a busy GPU         | cluster throughput / GPUs held by jobs: 1 is a single GPU's mean speed  |
| GPU time lost              | to checkpoints, restores and recomputing, of the GPU time of workers    |
| error of the estimates     | of the executions, by their length                                      |
| jobs with LR above 1       | they waited for longer than they were expected to run                   |
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from hopyard.lab.report.document import Table
from hopyard.lab.report.figures import mean_of
from hopyard.lab.report.measures import spread
from hopyard.lab.runs.trials import Simulated
from schemas.results import JobResult

MINUTE_S, HOUR_S = 60.0, 3600.0


def causes(outcomes: Mapping[str, Sequence[Simulated]]) -> Table:
    """A row a cause, a column an arm; mean and interval over seeds."""
    rows = []
    for label, cause in CAUSES.items():
        rows.append([label, *(spread(mean_of(seeds, cause)) for seeds in outcomes.values())])
    return Table(["", *(f">{arm}" for arm in outcomes)], rows)


def _first_wait(outcome: Simulated) -> float | None:
    return _mean(_first_wait_s(job) / MINUTE_S for job in _started(outcome))


def _later_wait(outcome: Simulated) -> float | None:
    return _mean((job.wait_s - _first_wait_s(job)) / MINUTE_S for job in _started(outcome))


def _gpus(outcome: Simulated) -> float | None:
    return _share(
        math.fsum(one.gpus * one.seconds for one in outcome.executions),
        math.fsum(one.seconds for one in outcome.executions),
    )


def _distributed(outcome: Simulated) -> float | None:
    return _share(
        100 * math.fsum(one.gpus * one.seconds for one in outcome.executions if one.distributed),
        math.fsum(one.gpus * one.seconds for one in outcome.executions),
    )


def _held(outcome: Simulated) -> float | None:
    return _mean(job.gpu_s / HOUR_S for job in outcome.jobs)


def _work(outcome: Simulated) -> float | None:
    return _share(
        math.fsum(point.throughput for point in outcome.curve),
        math.fsum(point.busy_gpus for point in outcome.curve),
    )


def _lost(outcome: Simulated) -> float | None:
    """A share of the time from orders to start to the workers' ends: a job is restored before it runs."""
    time = outcome.gpu_time
    if time is None:
        return None
    return _share(100 * time.restarts, math.fsum((time.useful, time.slower_types, time.gangs, time.restarts)))


def _error(outcome: Simulated) -> float | None:
    return _share(
        100 * math.fsum(one.error * one.seconds for one in outcome.executions),
        math.fsum(one.seconds for one in outcome.executions),
    )


def _starved(outcome: Simulated) -> float | None:
    ratios = [job.latency_ratio for job in outcome.jobs if job.latency_ratio is not None]
    return _share(100.0 * sum(ratio > 1 for ratio in ratios), len(ratios))


CAUSES: Mapping[str, Callable[[Simulated], float | None]] = {
    "wait for the first start, min": _first_wait,
    "wait after it, min": _later_wait,
    "GPUs of a running job": _gpus,
    "distributed, % of GPU time": _distributed,
    "GPU time of a job, GPU·h": _held,
    "work of a busy GPU": _work,
    "GPU time lost, %": _lost,
    "error of the estimates, %": _error,
    "jobs with LR above 1, %": _starved,
}


def _started(outcome: Simulated) -> list[JobResult]:
    return [job for job in outcome.jobs if job.started_at is not None]


def _first_wait_s(job: JobResult) -> float:
    assert job.started_at is not None, "of started jobs only"
    return job.started_at - job.submitted_at


def _mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return _share(math.fsum(found), len(found))


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None
