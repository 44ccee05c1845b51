"""Hadar's simulation (section IV of its paper): arms, the paper's figures, and why ours differ. Pure.

The paper prints ratios and one time, so ratios are what is compared: by seed, every arm over the first.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from statistics import median

import msgspec

from hopyard.lab.experiments import comparison
from hopyard.lab.experiments.baselines import AS_PUBLISHED, Contender, Setup
from hopyard.lab.experiments.options import Options
from hopyard.lab.experiments.paper import Reported
from hopyard.lab.report.document import Figure, Part, Table
from hopyard.lab.report.figures import OfRun, mean_of, named, over
from hopyard.lab.report.measures import figure, spread
from hopyard.lab.runs.cases import Case, Finished, arms_of
from hopyard.lab.runs.trials import Simulated, Simulation
from loadgen.scenarios import load_scenario
from schemas.plans import PlanKind
from shared.domain.policy_names import parted, written

SCENARIO = "hadar-60"
POLICIES = ("hadar", "hadar-delay", "hadar-literal", "gavel", "gavel-makespan", "tiresias", "yarn-cs")
GROUP = "as in section IV"
HOUR_S = 3600.0

PRESETS: Mapping[str, Mapping[str, object]] = {"tiresias": {"thresholds": "3250"}}
"""two queues; where the first one ends is not printed, and is as in Tiresias' own study"""

REPORTED: Reported = {
    "hadar": {"makespan_s": 40.0},
    "gavel": {"makespan_s": 48.4},
    "tiresias": {"makespan_s": 54.0},
    "yarn-cs": {"makespan_s": 68.0},
}
"""section IV and figure 4; of gavel and tiresias as 40 h × the printed ratio"""

RATIOS: Mapping[str, Mapping[str, float]] = {
    "gavel": {"makespan_s": 1.21, "jct_s_p50": 1.20, "jct_s_mean": 2.5},
    "tiresias": {"makespan_s": 1.35, "jct_s_p50": 1.40},
    "yarn-cs": {"makespan_s": 1.67, "jct_s_mean": 3.0},
}
"""over Hadar: figure 4, its half-way line, and the abstract of the IPDPS version"""
COMPARED = {"makespan_s": "TTD", "jct_s_p50": "until half are done", "jct_s_mean": "mean JCT"}


class Statement(msgspec.Struct, frozen=True):
    """A ratio that the paper prints, and the quotient of what it prints beside it."""

    what: str
    printed: float
    above: float
    below: float


STATEMENTS = (
    Statement("TTD, YARN-CS over Hadar, hours (figure 4)", 1.67, 68.0, 40.0),
    Statement("TTD of M-5 on AWS, Gavel over Hadar, s (figure 9)", 1.18, 4200.0, 3900.0),
    Statement("TTD of M-5 in the lab, Gavel over Hadar, s (figure 9)", 1.15, 3300.0, 2800.0),
    Statement("TTD over the largest JCT of M-5 on AWS under Hadar, s", 1.0, 3900.0, 2918.0),
    Statement("TTD over the largest JCT of M-5 on AWS under Gavel, s", 1.0, 4200.0, 3159.0),
)
PAPER_GPU_HOURS = 40.0 * 60 / 480
"""GPU-hours of a job on average, at most: all GPUs busy for all of the printed time"""


def cases(options: Options) -> Iterator[Case]:
    for one in options.policies:
        setup = _setup(one)
        for seed in options.seeds:
            trial = Simulation(
                scenario=options.scenario, policy=setup.policy, seed=seed, overrides=setup.overrides
            )
            yield Case(group=GROUP, arm=one.label, trial=trial)


def _setup(one: Contender) -> Setup:
    """The setup of a policy: the paper's, unless other options were asked for."""
    name, asked = parted(one.policy)
    return Setup(written(name, {**PRESETS.get(name, {}), **asked}), {**AS_PUBLISHED, **one.overrides})


def reported(options: Options) -> Reported:
    """The paper's figures; none for other jobs than the scenario's own."""
    return REPORTED if options.scenario.workload == load_scenario(SCENARIO).workload else {}


def report(options: Options, finished: Sequence[Finished]) -> Iterator[Part]:
    outcomes = arms_of(finished)
    if reported(options):
        yield from _ratios(outcomes)
    yield "### Where the hours go"
    yield WHERE
    rows = [[label, *_row(outcomes, cause)] for label, cause in CAUSES.items()]
    yield Table(["", *(f">{arm}" for arm in outcomes)], rows)
    yield "### What a plan takes"
    yield PLANS
    yield Table(["jobs", *(f">{arm}, s" for arm in outcomes)], list(_plans(outcomes)))
    if reported(options):
        yield from _contradictions()
    yield from comparison.compared(finished, reported(options), "section IV")


def figures_of(options: Options, finished: Sequence[Finished]) -> list[Figure]:
    outcomes = arms_of(finished)
    return [
        *comparison.figures_of(finished, reported(options)),
        *_caused(outcomes),
        *_quotients(outcomes),
    ]


def _caused(outcomes: Mapping[str, Sequence[Simulated]]) -> Iterator[Figure]:
    for arm, seeds in outcomes.items():
        for label, cause in CAUSES.items():
            if (found := mean_of(seeds, cause)) is not None:
                yield named(GROUP, arm, label, found)


def _quotients(outcomes: Mapping[str, Sequence[Simulated]]) -> Iterator[Figure]:
    first, *others = outcomes
    for arm in others:
        for metric, title in COMPARED.items():
            if (found := over(outcomes[arm], outcomes[first], _metric(metric))) is not None:
                yield named(f"{GROUP}, over {first}", arm, title, found)


def _metric(name: str) -> OfRun:
    return lambda one: one.result.metrics.get(name)


# ---- ratios


def _ratios(outcomes: Mapping[str, Sequence[Simulated]]) -> Iterator[Part]:
    first, *others = outcomes
    yield f"## Over {first}, beside the paper"
    yield (
        f"Every figure divided by that of {first} at the same seed; *the paper's* below, over Hadar. TTD: "
        "total time duration, until the last job is done."
    )
    rows = []
    for arm in others:
        found = (over(outcomes[arm], outcomes[first], _metric(metric)) for metric in COMPARED)
        rows.append([f"**{arm}**", *map(spread, found)])
        if arm in RATIOS:
            printed = (RATIOS[arm].get(metric) for metric in COMPARED)
            rows.append(["", *("" if value is None else f"*{value:.2f}*" for value in printed)])
    yield Table(["", *(f">{name}" for name in COMPARED.values())], rows)


def _contradictions() -> Iterator[Part]:
    yield "### What the paper prints of itself"
    yield (
        f"Its 480 jobs end within 40 h on 60 GPUs, so they have at most {PAPER_GPU_HOURS:g} GPU-hours each "
        "in the mean. Classes drawn uniformly, as its text says, have a mean of 27 or more; the trace's own "
        "sizes, cut at 100 GPU-hours, have one of 3 to 4, and this scenario has them. Some of its ratios are "
        "not the quotients of the numbers printed beside them, and a batch's TTD is its largest JCT:"
    )
    rows = [
        [one.what, f"{one.above:g} / {one.below:g}", f"{one.above / one.below:.2f}", f"{one.printed:.2f}"]
        for one in STATEMENTS
    ]
    yield Table(["", ">numbers printed", ">their quotient", ">ratio printed or due"], rows)


# ---- figure 5: what a plan takes

JOBS_UP_TO = (32, 64, 128, 256, 512, 1024, 2048)
PLANS = (
    "Median seconds of a first plan, by how many jobs take part in it; as in all simulations they are "
    "reckoned from the work that a plan does. The paper (figure 5, 32 to 2,048 jobs): Hadar and Gavel alike, "
    "under 7 minutes at about 2,000."
)


def _plans(outcomes: Mapping[str, Sequence[Simulated]]) -> Iterator[list[str]]:
    """A row for each range of job counts that some arm had to plan."""
    for fewer, most in pairwise((0, *JOBS_UP_TO)):
        found = [_plan_s(seeds, fewer, most) for seeds in outcomes.values()]
        if any(seconds is not None for seconds in found):
            cells = ("–" if seconds is None else figure(seconds) for seconds in found)
            yield [f"{fewer + 1} to {most}", *cells]


def _plan_s(seeds: Sequence[Simulated], fewer: int, most: int) -> float | None:
    plans = (plan for one in seeds for plan in one.plans if plan.kind == PlanKind.FIRST.value)
    took = [plan.solve_s for plan in plans if fewer < plan.placements + plan.left_out <= most]
    return median(took) if took else None


# ---- why: from the event log

WHERE = """\
A TTD is bounded twice: by the work, if all GPUs were busy to the end, and by the longest job, which runs \
on as many GPUs as it asked for, however many are idle.

- **if all GPUs were busy**: GPU time held by jobs / GPUs
- **the longest run**: of any job, without its waiting
- **nobody waits after**: the last plan that left a job out; from then on no policy can do anything but wait
- **busy until then**: share of the GPUs
- **busy to the end**: the same until the TTD, the paper's GRU (figure 3, order only: YARN-CS highest, Hadar \
near it, Gavel below)
- **several types**: share of the GPU time in gangs that mix GPU types
- **rounds with a move**: those in which a job that had run before restarts; 30 % in the paper"""


def _row(outcomes: Mapping[str, Sequence[Simulated]], cause: OfRun) -> Iterator[str]:
    for seeds in outcomes.values():
        yield spread(mean_of(seeds, cause))


def _all_busy_h(one: Simulated) -> float:
    return math.fsum(job.gpu_s for job in one.jobs) / len(one.gpu_types) / HOUR_S


def _longest_run_h(one: Simulated) -> float | None:
    return max((job.jct_s - job.wait_s for job in one.jobs if job.jct_s), default=0.0) / HOUR_S or None


def _queue_ends_at(one: Simulated) -> float:
    return max((plan.at for plan in one.plans if plan.left_out), default=one.began_at)


def _queue_ends_h(one: Simulated) -> float:
    return (_queue_ends_at(one) - one.began_at) / HOUR_S


def _busy_while_queued(one: Simulated) -> float | None:
    first, last = one.began_at, _queue_ends_at(one)
    busy = [point.busy_gpus for point in one.curve if first <= point.at <= last]
    return 100 * math.fsum(busy) / len(busy) / len(one.gpu_types) if busy else None


def _busy(one: Simulated) -> float | None:
    gru = one.result.metrics.get("gru")
    return None if gru is None else 100 * gru


def _mixed(one: Simulated) -> float | None:
    whole = math.fsum(each.gpus * each.seconds for each in one.executions)
    mixed = math.fsum(each.gpus * each.seconds for each in one.executions if "+" in each.gpu_type)
    return 100 * mixed / whole if whole else None


def _moving_rounds(one: Simulated) -> float | None:
    rounds = math.ceil((one.result.metrics.get("makespan_s") or 0.0) / one.result.round_s)
    by_job = sorted(one.executions, key=lambda each: (each.job_id, each.at))
    again = [each.at for _, runs in groupby(by_job, key=lambda each: each.job_id) for each in list(runs)[1:]]
    return 100 * len({at // one.result.round_s for at in again}) / rounds if rounds else None


def _one_gpu(one: Simulated) -> float | None:
    gpus = {each.job_id: each.gpus for each in one.executions}
    return 100 * sum(count == 1 for count in gpus.values()) / len(gpus) if gpus else None


CAUSES: Mapping[str, OfRun] = {
    "if all GPUs were busy, h": _all_busy_h,
    "the longest run, h": _longest_run_h,
    "nobody waits after, h": _queue_ends_h,
    "busy until then, %": _busy_while_queued,
    "busy to the end, %": _busy,
    "several types, %": _mixed,
    "jobs of one GPU, %": _one_gpu,
    "rounds with a move, %": _moving_rounds,
}
