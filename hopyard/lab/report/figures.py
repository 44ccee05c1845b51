"""The numbers that a report writes beside its tables, and how far apart two arms are at the same seed. Pure.

Arms have the same jobs at the same seed, so what sets them apart is taken seed by seed, and the interval is
of the mean of these differences or quotients (Student's t).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from hopyard.lab.report.document import Figure
from hopyard.lab.report.measures import HEADLINE, JOB_MEASURES, Measure
from hopyard.lab.report.statistics import Paired, Summary, difference, paired, summary
from hopyard.lab.runs.cases import by_seed, each_once
from hopyard.lab.runs.trials import Simulated

OfRun = Callable[[Simulated], float | None]
BETTER = "better JCT, %"
"""share of all jobs of all seeds that end sooner than under the first arm"""


def named(group: str, arm: str, heading: str, found: Summary, at: float | None = None) -> Figure:
    """`heading`: the measure, and behind a comma its unit."""
    title, _, unit = heading.rpartition(", ") if ", " in heading else (heading, "", "")
    return Figure(
        group=group,
        arm=arm,
        measure=title,
        unit=unit,
        mean=found.mean,
        half_width=found.half_width,
        values=found.values,
        at=at,
    )


def mean_of(outcomes: Sequence[Simulated], measured: OfRun) -> Summary | None:
    [runs] = each_once(outcomes)
    values = [value for outcome in runs if (value := measured(outcome)) is not None]
    return summary(values) if values else None


def seed_by_seed(mine: Sequence[Simulated], others: Sequence[Simulated], measured: OfRun) -> Summary | None:
    """The difference seed by seed: mine less the others', of seeds that have both."""
    return _combined(mine, others, measured, difference)


def over(mine: Sequence[Simulated], others: Sequence[Simulated], measured: OfRun) -> Summary | None:
    """The quotient seed by seed: mine over the others', of seeds where both are there and not 0."""
    return _combined(mine, others, measured, lambda value, other: value / other if value and other else None)


def _combined(
    mine: Sequence[Simulated],
    others: Sequence[Simulated],
    measured: OfRun,
    combine: Callable[[float, float], float | None],
) -> Summary | None:
    mine, others = each_once(mine, others)
    theirs = {one.result.seed: measured(one) for one in others}
    pairs = ((measured(one), theirs.get(one.result.seed)) for one in mine)
    found = [combine(value, other) for value, other in pairs if value is not None and other is not None]
    known = [value for value in found if value is not None]
    return summary(known) if known else None


def scaled(measure: Measure) -> OfRun:
    def measured(outcome: Simulated) -> float | None:
        value = outcome.result.metrics.get(measure.metric)
        return None if value is None else value / measure.scale

    return measured


def apart(
    group: str, outcomes: Mapping[str, Sequence[Simulated]], at: float | None = None
) -> Iterator[Figure]:
    """Every arm less the first: by seed, and by job of the same seed."""
    first, *others = outcomes
    for arm in others:
        for measure in HEADLINE:
            found = seed_by_seed(outcomes[arm], outcomes[first], scaled(measure))
            if found is not None:
                yield named(f"{group}, less {first}", arm, measure.heading, found, at)
        yield from _by_jobs(f"{group}, job by job less {first}", arm, outcomes[arm], outcomes[first], at)


def _by_jobs(
    group: str, arm: str, mine: Sequence[Simulated], others: Sequence[Simulated], at: float | None
) -> Iterator[Figure]:
    for measure in JOB_MEASURES:
        found = job_by_job(mine, others, measure)
        if found is None:
            continue
        each = summary([value / measure.scale for value in found.difference.values])
        yield named(group, arm, measure.heading, each, at)
        if measure.metric == "jct_s":
            yield named(group, arm, BETTER, summary([100 * found.smaller]), at)


def job_by_job(mine: Sequence[Simulated], others: Sequence[Simulated], measure: Measure) -> Paired | None:
    mine, others = each_once(mine, others)
    return paired(by_job(mine, measure.metric), by_job(others, measure.metric))


def by_job(outcomes: Sequence[Simulated], field: str) -> dict[int, dict[str, float]]:
    """A field of completed jobs, by seed and job."""
    return {
        outcome.result.seed: {
            job.job_id: value
            for job in outcome.jobs
            if job.state == "completed" and (value := getattr(job, field)) is not None
        }
        for outcome in outcomes
    }


def further_apart(
    group: str, by_place: Mapping[float, Mapping[str, Sequence[Simulated]]]
) -> Iterator[Figure]:
    """How much further every arm of a sweep is from the first arm than at the first place."""
    places = list(by_place)
    for place in places[1:]:
        first, *others = by_place[place]
        for arm in others:
            arms = [by_place[at].get(name, ()) for at in (place, places[0]) for name in (arm, first)]
            here, here_first, there, there_first = each_once(*arms)
            for measure in HEADLINE:
                now, then = _less(here, here_first, measure), _less(there, there_first, measure)
                more = [difference(now[seed], then[seed]) for seed in sorted(now.keys() & then.keys())]
                if more:
                    title = f"{group}, less {first}, less at {places[0]:g}"
                    yield named(title, arm, measure.heading, summary(more), place)


def _less(mine: Sequence[Simulated], others: Sequence[Simulated], measure: Measure) -> dict[int, float]:
    """The difference by seed, of seeds that have both."""
    value, other = (by_seed(each, measure.metric) for each in (mine, others))
    return {
        seed: difference(value[seed] / measure.scale, other[seed] / measure.scale)
        for seed in value.keys() & other.keys()
    }
