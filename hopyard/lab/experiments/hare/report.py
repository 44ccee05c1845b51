"""The report of Hare's experiment: a table per figure, with the paper's numbers. Pure.

All numbers come from event logs. Means have intervals over seeds; ratios are of the same seed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean

from hopyard.lab.experiments.hare import cases, printed
from hopyard.lab.report import pictures
from hopyard.lab.report.document import Figure, Part, Picture, Table
from hopyard.lab.report.figures import OfRun, mean_of, named, over
from hopyard.lab.report.measures import spread
from hopyard.lab.report.statistics import Summary
from hopyard.lab.runs.cases import Finished, arms_of, groups_of, places_of
from hopyard.lab.runs.trials import Simulated
from schemas.results import JobResult
from schemas.scenarios import TraceWorkload

SOON_S = 25 * 60.0
"""time within which figure 15 counts jobs"""
HOUR_S, MINUTE_S = 3600.0, 60.0
WEIGHTED, MEAN = "Σ w · JCT, h", "mean JCT, min"
SOON = "within 25 min, %"
OURS: Mapping[bool, str] = {False: cases.OURS_OFFLINE, True: cases.OURS_ONLINE}
"""our policy, by whether jobs arrive over time"""
REFERENCE: Mapping[str, str] = {WEIGHTED: cases.OURS_OFFLINE, MEAN: cases.OURS_ONLINE}
"""the policy that others are compared with, by measure"""


def report(finished: Sequence[Finished]) -> Iterator[Part]:
    yield PREFACE
    for group, members in groups_of(finished).items():
        yield f"## {group[0].upper()}{group[1:]}"
        yield from PARTS[group](members)


def figures_of(finished: Sequence[Finished]) -> list[Figure]:
    """Every measure of every arm, and ratios of the others to ours."""
    groups = groups_of(finished)
    measured = [
        named(group, arm, name, found, at)
        for group, members in groups.items()
        for at, here in _places(members)
        for arm, outcomes in arms_of(here).items()
        for name, measured in MEASURES.items()
        if (found := mean_of(outcomes, measured)) is not None
    ]
    ratios = [
        named(group, arm, _over_ours(of), found, at)
        for group, of in COMPARED_BY.items()
        for arm, by_place in _ratios(groups.get(group, []), of).items()
        for at, found in by_place.items()
    ]
    return [*measured, *ratios]


def _places(members: Sequence[Finished]) -> list[tuple[float | None, Sequence[Finished]]]:
    """The runs by place in the sweep; outside of a sweep all under None."""
    return [*places_of(members).items()] or [(None, members)]


# ---- one set of jobs


def _at_once(members: Sequence[Finished]) -> Iterator[Part]:
    """Figures 14, 15 and 18."""
    yield from _compared(members, WEIGHTED, online=False)
    scenario = members[0].case.trial.scenario
    own = scenario.name == cases.SCENARIO and not isinstance(scenario.workload, TraceWorkload)
    if not own and members[0].case.group == cases.TESTBED:
        yield "The paper has nothing about this scenario."
    elif members[0].case.group == cases.TESTBED:
        soon = (f"{arm} {100 * share:.1f} %" for arm, share in printed.WITHIN_25_MIN.items())
        yield (
            "The paper (figure 14): weighted completion time of the others is "
            f"{printed.OTHERS_OVER_HARE} times that of Hare. Within 25 min (figure 15): {', '.join(soon)}."
        )
        yield _jcts(members, "testbed")
    elif members[0].case.group in cases.LEVELS.values():
        yield f"The paper (figure 18): AlloX about {printed.ALLOX_OVER_HARE:g} times Hare, at every level."
    elif members[0].case.group == cases.IN_ADVANCE:
        yield "In the paper workloads are profiled in advance; in the other tables here, in the first rounds."
    else:
        yield "The paper (figure 19): more language is worse for all, more recommendation better."


def _over_time(members: Sequence[Finished]) -> Iterator[Part]:
    """Figures 22, 26 and 27."""
    yield from _compared(members, MEAN, online=True)
    yield (
        f"The paper: 2D-LAS (`{cases.TWO_D}`, and with the thresholds of HLAS) takes "
        f"{printed.OVER_HLAS[cases.TWO_D]:g} times as long as HLAS (figure 22), and HLAS "
        f"{printed.HLAS_OVER_HLAS_P:g} times as long as HLAS-P; HLAS-L gains little (figures 26, 27). Its "
        "abstract has 2.94, which is nowhere in its evaluation."
    )
    yield _jcts(members, "online")


def _compared(members: Sequence[Finished], of: str, *, online: bool) -> Iterator[Part]:
    """All measures, and the ratio of each arm to ours, or to the first arm if ours is not there."""
    outcomes = arms_of(members)
    ours = OURS[online] if OURS[online] in outcomes else next(iter(outcomes))
    rows = [
        [
            f"**{arm}**",
            *(spread(mean_of(found, measured), marked=False) for measured in MEASURES.values()),
            spread(over(found, outcomes[ours], MEASURES[of])),
        ]
        for arm, found in outcomes.items()
    ]
    yield Table(["", *(f">{name}" for name in MEASURES), f">{of.partition(', ')[0]}, over {ours}"], rows)


def _jcts(members: Sequence[Finished], name: str) -> Picture:
    values = {
        arm: [job.jct_s / MINUTE_S for one in found for job in one.jobs if job.jct_s is not None]
        for arm, found in arms_of(members).items()
    }
    drawn = pictures.distributions({"completion time, min": values}, list(values), of="jobs")
    return Picture(f"{name}-jct", "Completion times, jobs of all seeds.", drawn)


# ---- sweeps


def _swept(of: str, label: str, said: str) -> Callable[[Sequence[Finished]], Iterator[Part]]:
    def part(members: Sequence[Finished]) -> Iterator[Part]:
        places = places_of(members)
        found = {
            arm: {
                at: each
                for at, here in places.items()
                if (each := mean_of(arms_of(here).get(arm, []), MEASURES[of])) is not None
            }
            for arm in arms_of(members)
        }
        rows = [
            [f"**{arm}**", *(spread(by_place.get(at), marked=False) for at in places), _change(by_place)]
            for arm, by_place in found.items()
        ]
        yield Table([of, *(f">{at:g} {label}" for at in places), ">last over first"], rows)
        if members[0].case.group in COMPARED_BY:
            yield from _ratio_table(members, of, label)
        yield said
        if len(places) > 2 and any(found.values()):  # noqa: PLR2004 - two places are no curve
            name = "".join(letter if letter.isalnum() else "-" for letter in members[0].case.group.lower())
            yield Picture(name, f"{of}, by {label}.", pictures.sweep({of: found}, list(found), label))

    return part


def _ratio_table(members: Sequence[Finished], of: str, label: str) -> Iterator[Table]:
    places, found = places_of(members), _ratios(members, of)
    rows = [
        [f"**{arm}**", *(spread(by_place.get(at), marked=False) for at in places)]
        for arm, by_place in found.items()
    ]
    if rows:
        yield Table([_over_ours(of), *(f">{at:g} {label}" for at in places)], rows)


def _ratios(members: Sequence[Finished], of: str) -> dict[str, dict[float | None, Summary]]:
    """Ratios of the others to ours, by arm and place; each ratio is of one seed."""
    found: dict[str, dict[float | None, Summary]] = {}
    for at, here in _places(members):
        outcomes = arms_of(here)
        for arm in outcomes.keys() - {REFERENCE[of]}:
            each = over(outcomes[arm], outcomes.get(REFERENCE[of], []), MEASURES[of])
            if each is not None:
                found.setdefault(arm, {})[at] = each
    return {arm: found[arm] for arm in arms_of(members) if arm in found}


def _over_ours(of: str) -> str:
    return f"{of.partition(', ')[0]} over {REFERENCE[of]}"


def _change(by_place: Mapping[float, Summary]) -> str:
    means = [by_place[at].mean for at in sorted(by_place)]
    return f"{means[-1] / means[0]:.2f}" if len(means) > 1 and means[0] else "–"


# ---- one figure


def _metric(name: str, unit: float) -> OfRun:
    def measured(outcome: Simulated) -> float | None:
        value = outcome.result.metrics.get(name)
        return None if value is None else value / unit

    return measured


def _jobs(outcome: Simulated) -> list[JobResult]:
    """The jobs of a run without those that ran only for their profiles."""
    return [job for job in outcome.jobs if not job.name.startswith(cases.PROFILING_PREFIX)]


def _of_jobs(name: str, unit: float, own: Callable[[Sequence[JobResult]], float]) -> OfRun:
    """The metric without jobs that ran only for their profiles; if there are any, it is computed by `own`."""

    def measured(outcome: Simulated) -> float | None:
        jobs = _jobs(outcome)
        if len(jobs) == len(outcome.jobs):
            return _metric(name, unit)(outcome)
        done = [job for job in jobs if job.jct_s is not None]
        return own(done) / unit if done else None

    return measured


def _weighted_s(done: Sequence[JobResult]) -> float:
    return sum(job.priority * (job.jct_s or 0.0) for job in done)


def _mean_s(done: Sequence[JobResult]) -> float:
    return fmean(job.jct_s or 0.0 for job in done)


def _makespan_s(done: Sequence[JobResult]) -> float:
    return max(job.ended_at or 0.0 for job in done) - min(job.submitted_at for job in done)


def _within(outcome: Simulated) -> float | None:
    """The share of all jobs, in %, that completed within SOON_S."""
    jobs = _jobs(outcome)
    soon = sum(job.jct_s is not None and job.jct_s <= SOON_S for job in jobs)
    return 100 * soon / len(jobs) if jobs else None


def _computing(outcome: Simulated) -> float | None:
    """In %: the time that the work would have taken on single GPUs of the same types, over GPU time held."""
    time = outcome.gpu_time
    if time is None:
        return None
    computing = time.useful + time.slower_types
    held = computing + time.gangs + time.restarts + time.profiling
    return 100 * computing / held if held > 0 else None


def _decision_ms(outcome: Simulated) -> float | None:
    value = outcome.result.metrics.get("decision_s_p50")
    return None if value is None else 1000 * value


MEASURES: Mapping[str, OfRun] = {
    WEIGHTED: _of_jobs("weighted_jct_s", HOUR_S, _weighted_s),
    MEAN: _of_jobs("jct_s_mean", MINUTE_S, _mean_s),
    SOON: _within,
    "makespan, min": _of_jobs("makespan_s", MINUTE_S, _makespan_s),
    "mean time to resume, s": _metric("switch_s_mean", 1.0),
    "restarts": _metric("restarts", 1.0),
    "computing of GPU time held, %": _computing,
    "a plan, ms": _decision_ms,
}

PREFACE = (
    "w: the user's priority of a job, 1 here. Starts after the first: from the order until the job trains "
    "again; for a relaxed gang that stands by, the switch of table III, for others a start of processes. "
    "Computing: the time that the samples would have taken on single GPUs of the same types, over all GPU "
    "time held; the rest is exchanges, waiting for the slowest, starts and profiles. Every figure of the "
    "paper is a picture; its numbers here are those of its text."
)

PARTS: Mapping[str, Callable[[Sequence[Finished]], Iterator[Part]]] = {
    cases.TESTBED: _at_once,
    **dict.fromkeys(cases.LEVELS.values(), _at_once),
    **dict.fromkeys((*cases.MIXES.values(), cases.IN_ADVANCE), _at_once),
    cases.OVER_TIME: _over_time,
    cases.NETWORK: _swept(
        WEIGHTED, "Gb/s", f"The paper (figure 20): Hare {100 * printed.BY_NETWORK:.1f} % from 10 to 25 Gb/s."
    ),
    cases.BATCHES: _swept(
        WEIGHTED,
        "times the batch",
        "The paper (figure 21): little effect, but Sched_Homo is worse with larger batches.",
    ),
    cases.GROUPS: _swept(
        MEAN,
        "groups",
        "The paper (figure 24): with more groups, total completion time decreases and the average increases. "
        "Both cannot be, since the jobs are the same.",
    ),
    cases.QUEUES: _swept(
        MEAN,
        "s",
        "The paper prints neither the number of queues nor their ends; by default the first ends at 60 s.",
    ),
    cases.DECISIONS: _swept(
        "a plan, ms",
        "jobs",
        "The paper (figure 25): cost grows less than linearly. Modelled, as in all simulations.",
    ),
    cases.GPUS_OFFLINE: _swept(
        WEIGHTED,
        "GPUs",
        f"The paper (figure 16): AlloX about {printed.ALLOX_OVER_HARE:g} times Hare, Gavel_FIFO the worst.",
    ),
    cases.JOBS_OFFLINE: _swept(
        WEIGHTED,
        "jobs",
        f"The paper (figure 17): others {printed.OTHERS_OVER_HARE_300} times Hare at 300 jobs; gaps widen.",
    ),
    cases.GPUS_ONLINE: _swept(
        MEAN,
        "GPUs",
        f"The paper (figure 22): 2D-LAS {printed.OVER_HLAS[cases.TWO_D]:g} times HLAS, FIFO behind both.",
    ),
    cases.JOBS_ONLINE: _swept(
        MEAN,
        "jobs",
        f"The paper (figure 23): at 300 jobs {printed.OVER_HLAS_300}; the gap to FIFO widens.",
    ),
}
"""functions that make the section of a group, by group"""
COMPARED_BY: Mapping[str, str] = {
    **dict.fromkeys((cases.TESTBED, *cases.LEVELS.values()), WEIGHTED),
    **dict.fromkeys((*cases.MIXES.values(), cases.IN_ADVANCE), WEIGHTED),
    cases.OVER_TIME: MEAN,
    cases.GPUS_OFFLINE: WEIGHTED,
    cases.JOBS_OFFLINE: WEIGHTED,
    cases.GPUS_ONLINE: MEAN,
    cases.JOBS_ONLINE: MEAN,
}
"""by group, the measure by which the others are compared with ours"""
