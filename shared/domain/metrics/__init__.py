"""The metrics, defined once for every policy: pure functions from a ledger.

| name                    | unit    | what                                                                  |
|-------------------------|---------|-----------------------------------------------------------------------|
| makespan_s              | s       | last completion − first submission                                    |
| ttd_s                   | s       | makespan, if all jobs were submitted before any started; else None    |
| jct_s_mean …_max        | s       | completion − submission: mean, p50, p95, p99, max                     |
| weighted_jct_s          | s       | Σ last priority · JCT of the completed jobs (Hare)                    |
| wt_s_mean               | s       | waiting time: neither running nor on hold; profiling and starts count |
| lr_mean, lr_max         | 1       | latency ratio, wait / age (Hops eq. 8)                                |
| raqlr                   | 1       | mean latency ratio of the jobs that ended in the last 4 h (eq. 7)     |
| fragments_mean          | GPUs    | idle GPUs after a plan that left out a job that could run, else 0:    |
|                         |         | mean over each round's plans, then over rounds                        |
| ftf_rho_mean, …_max     | 1       | finish-time fairness, JCT / T_isolated                                |
| ftf_unfair_share        | 1       | share of jobs with ρ above 1                                          |
| jain_index              | 1       | of JCT / JCT under equal sharing (JPS eq. 33): the same ratio as ρ    |
| jain_equal              | 1       | the same with 1/S of every GPU, S the number of jobs (JPS eq. 32):    |
|                         |         | no limit by a demand, however many were there at a time               |
| gru                     | 1       | busy GPU time / available GPU time                                    |
| cru                     | 1       | busy node time / available node time (Hadar)                          |
| cru_slots               | 1       | the same over whole rounds, as Hadar prints it: busy node time /      |
|                         |         | (nodes · round · rounds); None where rounds are not known             |
| cluster_throughput_mean | GPUs    | samples/s of all jobs, each in units of its single-GPU mean over types|
| restarts                | 1       | preemptions of all jobs, without those to merge copies                |
| switch_s_mean           | s       | from the order to start a job that ran before until it trains again   |
| lost_work_gpu_s         | GPU·s   | recomputed, or spent on checkpoints and restores (see the function)   |
| merges                  | 1       | means taken of copies' weights (HadarE)                               |
| merge_steps_mean, …_max | 1       | optimizer steps of a copy from one merge to the next                  |
| copy_share_max          | 1       | the most that one copy did of the samples between two merges          |
| decision_s_p50, …_p99   | s       | from the first look at the view to the plan                           |
| gap_max                 | 1       | proven relative gap of the solved plans                               |

JCT, waiting and the ratios are about completed jobs. A figure without data is None, never NaN.
A GPU is available while its node is alive, unless it is withheld. ρ and jain_equal take the mean number of
available GPUs over each job's life. Available time and the mean throughput are taken from the first
submission to the last end of a job, or to now while jobs are unfinished. A GPU is busy while the processes of
a worker are up: profiling and checkpoints included, the start not.

The monitor answers with these figures while the cluster runs; the result of a run holds them afterwards.
Figures over time and distributions are in `curves`.
"""

import math
from collections.abc import Iterable, Sequence

from schemas.plans import Stage
from schemas.results import PlanFigures
from shared.domain.ledger import Ledger
from shared.domain.ledger.jobs import add_runs
from shared.domain.ledger.records import JobRecord, RunSums
from shared.domain.metrics.fairness import equal_sharing_ratios, ftf_rhos, jain
from shared.domain.metrics.merging import merging
from shared.domain.metrics.use import cluster_throughput_mean, cru, cru_slots, first_submission, gru, span_s
from shared.domain.states import WAITING, JobState
from shared.domain.sums import plain_sum

RAQLR_WINDOW_S = 4 * 3600.0


def summary(
    ledger: Ledger,
    *,
    now: float | None = None,
    raqlr_window_s: float = RAQLR_WINDOW_S,
    round_s: float | None = None,
) -> dict[str, float | None]:
    """Every figure of the table above. `now`: the time of the newest fact, unless given."""
    at = ledger.at if now is None else now
    done = completed(ledger)
    jcts = [jct_s(record) for record in done]
    ratios = latency_ratios(done)
    rhos = ftf_rhos(ledger, done)
    runs = runs_of(ledger.jobs.values())
    copies = merging(runs)
    return {
        "makespan_s": makespan_s(ledger),
        "ttd_s": ttd_s(ledger),
        "jct_s_mean": mean(jcts),
        "jct_s_p50": percentile(jcts, 0.50),
        "jct_s_p95": percentile(jcts, 0.95),
        "jct_s_p99": percentile(jcts, 0.99),
        "jct_s_max": max(jcts, default=None),
        "weighted_jct_s": weighted_jct_s(done),
        "wt_s_mean": mean([record.wait_s(at) for record in done]),
        "lr_mean": mean(ratios),
        "lr_max": max(ratios, default=None),
        "raqlr": raqlr(ledger, now=at, window_s=raqlr_window_s),
        "fragments_mean": fragments_mean(ledger),
        "ftf_rho_mean": mean(rhos),
        "ftf_rho_max": max(rhos, default=None),
        "ftf_unfair_share": mean([float(rho > 1) for rho in rhos]),
        "jain_index": jain(rhos),
        "jain_equal": jain(equal_sharing_ratios(ledger, done)),
        "gru": gru(ledger, at),
        "cru": cru(ledger, at),
        "cru_slots": None if round_s is None else cru_slots(ledger, at, round_s),
        "cluster_throughput_mean": cluster_throughput_mean(ledger, at),
        "restarts": float(sum(record.restarts for record in ledger.jobs.values())),
        "switch_s_mean": runs.switch_s / runs.switches if runs.switches else None,
        "lost_work_gpu_s": lost_work_gpu_s(ledger),
        "merges": float(copies.merges),
        "merge_steps_mean": copies.steps_mean,
        "merge_steps_max": copies.steps_max,
        "copy_share_max": copies.share_max,
        "decision_s_p50": percentile(decisions_s(ledger), 0.50),
        "decision_s_p99": percentile(decisions_s(ledger), 0.99),
        "gap_max": max(gaps(ledger), default=None),
    }


def plan_figures(ledger: Ledger) -> PlanFigures:
    stages: dict[str, int] = {}
    for plan in ledger.plans:
        stages[plan.view.stage.value] = stages.get(plan.view.stage.value, 0) + 1
    return PlanFigures(
        plans=len(ledger.plans),
        decision_s_p50=percentile(decisions_s(ledger), 0.50),
        decision_s_p99=percentile(decisions_s(ledger), 0.99),
        gap_max=max(gaps(ledger), default=None),
        stages=dict(sorted(stages.items())),
    )


def jobs_by_state(ledger: Ledger) -> dict[str, int]:
    """Number of jobs in each state that has any, in the order of a job's life; forgotten jobs count."""
    counts = dict.fromkeys(JobState, 0)
    for record in ledger.jobs.values():
        counts[record.state] += 1
    for state, number in ledger.forgotten.items():
        counts[state] += number
    return {state.value: number for state, number in counts.items() if number}


def jobs_on_hold(ledger: Ledger) -> int:
    """Number of jobs that would wait for GPUs if they were not on hold."""
    return sum(record.hold is not None and record.state in WAITING for record in ledger.jobs.values())


def job_counts(ledger: Ledger) -> dict[str, int]:
    """`submitted`: all jobs so far. Then the jobs by state; the state SUBMITTED is called `profiling`."""
    states = jobs_by_state(ledger)
    names = {JobState.SUBMITTED.value: "profiling"}
    return {
        "submitted": sum(states.values()),
        **{names.get(state, state): number for state, number in states.items()},
    }


# ---- jobs


def completed(ledger: Ledger) -> list[JobRecord]:
    return [record for record in ledger.jobs.values() if record.state is JobState.COMPLETED]


def jct_s(record: JobRecord) -> float:
    """Completion − submission of an ended job."""
    assert record.ended_at is not None, "only ended jobs have a completion time"
    return max(record.ended_at - record.submitted_at, 0.0)


def weighted_jct_s(done: Sequence[JobRecord]) -> float | None:
    return math.fsum(record.spec.priority * jct_s(record) for record in done) if done else None


def runs_of(records: Iterable[JobRecord]) -> RunSums:
    """Over all runs of these jobs, whether they are kept or not."""
    sums = RunSums()
    for record in records:
        add_runs(sums, record)
    return sums


def makespan_s(ledger: Ledger) -> float | None:
    ends = [record.ended_at for record in completed(ledger) if record.ended_at is not None]
    return max(ends) - first_submission(ledger) if ends else None


def ttd_s(ledger: Ledger) -> float | None:
    """Makespan of a batch; None if a job was submitted after another had started."""
    starts = [record.started_at for record in ledger.jobs.values() if record.started_at is not None]
    if not starts or max(record.submitted_at for record in ledger.jobs.values()) > min(starts):
        return None
    return makespan_s(ledger)


def latency_ratio(record: JobRecord, now: float) -> float | None:
    """Waiting time / age (Hops eq. 8); None before the job has an age."""
    return record.wait_s(now) / record.age_s if record.age_s else None


def latency_ratios(records: Iterable[JobRecord]) -> list[float]:
    """Latency ratios of ended jobs, without jobs that have no age."""
    ends = ((record, record.ended_at) for record in records)
    ratios = (latency_ratio(record, end) for record, end in ends if end is not None)
    return [ratio for ratio in ratios if ratio is not None]


def raqlr(ledger: Ledger, *, now: float, window_s: float = RAQLR_WINDOW_S) -> float | None:
    """Mean latency ratio of the jobs that ended, in any way, in the last `window_s` seconds (eq. 7)."""
    jobs = ledger.jobs.values()
    lately = (job for job in jobs if job.ended_at is not None and job.ended_at >= now - window_s)
    return mean(latency_ratios(lately))


def expected_wait_s(record: JobRecord, recent: float | None) -> float | None:
    """Roughly how long a waiting job waits in all, seconds: RAQLR × age (Hops section 3.6).

    The wait so far is included. `recent`: the RAQLR. None: the job does not wait, is on hold, or RAQLR or age
    is unknown.
    """
    if record.state not in WAITING or record.hold or recent is None or record.age_s is None:
        return None
    return recent * record.age_s


def lost_work_gpu_s(ledger: Ledger) -> float:
    """GPU-seconds recomputed, or spent on checkpoints and restores, as far as the facts show.

    Recomputed: GPUs × the time from the newest checkpoint to the order to stop or, without one, to the
    preemption, where a node was lost or an agent restarted (the silence before a loss is noticed included).
    Checkpoint: a worker's GPUs from the order to stop to its end. Restore: from the first order to start to
    JobStarted, at every start but a job's first. What a cancelled or failed job had done is never recomputed,
    so it does not count.
    """
    return plain_sum(record.lost_gpu_s for record in ledger.jobs.values())


# ---- plans


def fragments_mean(ledger: Ledger) -> float | None:
    """Idle GPUs beside jobs that could run (Avg.frag), over the rounds of the workload."""
    if not ledger.jobs:
        return None
    first, last = span_s(ledger, ledger.at)
    rounds: dict[int, list[int]] = {}
    for plan in ledger.plans:
        if first <= plan.view.at <= last:
            rounds.setdefault(plan.view.round, []).append(plan.fragments)
    return mean([plain_sum(found) / len(found) for found in rounds.values()])


def decisions_s(ledger: Ledger) -> list[float]:
    return [plan.view.decision_s for plan in ledger.plans]


def gaps(ledger: Ledger) -> list[float]:
    """Proven relative gaps of the plans, without plans that follow the queue's order: those have no gap."""
    views = (plan.view for plan in ledger.plans if plan.view.stage is not Stage.QUEUE)
    return [view.gap for view in views if math.isfinite(view.gap)]


# ---- statistics


def mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def percentile(values: Iterable[float], share: float) -> float | None:
    """The percentile, interpolated linearly between the closest ranks; `share` in 0 … 1."""
    ranked = sorted(values)
    if not ranked:
        return None
    place = share * (len(ranked) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ranked) - 1)
    return ranked[low] + (ranked[high] - ranked[low]) * (place - low)
