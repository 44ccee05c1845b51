"""Verdicts: which policy is best in which measure, by how much, and where the seeds do not tell. Pure.

Policies have the same jobs at the same seed, so they are compared seed by seed: the interval is of the mean
of these differences (Student's t). Two policies are apart where it does not contain 0; a difference below the
resolution is 0. Of every measure here less is better.
"""

from collections.abc import Iterator, Mapping, Sequence

from hopyard.lab.report.measures import HEADLINE, Measure, figure, says_little, spread
from hopyard.lab.report.statistics import Summary, difference, summary
from hopyard.lab.runs.cases import at_shared_seeds, by_seed, each_once, repeated, shared_seeds, values_of
from hopyard.lab.runs.trials import Simulated
from schemas.base import Message
from shared.domain.states import JobState

ENOUGH_SEEDS = 5
LEAST_SHARE = 0.005
"""a share that is more than 0 in whole per cent"""


class Distance(Message, frozen=True, kw_only=True):
    """How much more a policy has than the best one."""

    arm: str
    mean: float
    difference: Summary
    """difference seed by seed, in the unit of the measure"""

    @property
    def apart(self) -> bool:
        width = self.difference.half_width
        return width is not None and self.difference.mean > width

    @property
    def level(self) -> bool:
        """Whether the two have the same value, seed by seed."""
        return not any(self.difference.values)


class Verdict(Message, frozen=True, kw_only=True):
    group: str
    measure: str
    unit: str
    best: str
    mean: float
    others: tuple[Distance, ...]
    """the others, the nearest first"""
    text: str

    @property
    def leaders(self) -> list[str]:
        """The best, and those that are level with it."""
        return _leaders(self.best, self.others)

    @property
    def decided(self) -> bool:
        """Whether the leaders differ from every other, and there are others."""
        return not self.level and all(one.apart or one.level for one in self.others)

    @property
    def level(self) -> bool:
        """Whether all have the same value, seed by seed."""
        return all(one.level for one in self.others)


def verdicts(group: str, outcomes: Mapping[str, Sequence[Simulated]]) -> list[Verdict]:
    """A verdict on each measure that every policy has; none for a single policy, nor about different jobs."""
    if len(outcomes) < 2 or _unlike(outcomes):  # noqa: PLR2004 - two make a comparison
        return []
    found = (_verdict(group, measure, outcomes) for measure in HEADLINE)
    return [one for one in found if one is not None]


def _unlike(outcomes: Mapping[str, Sequence[Simulated]]) -> bool:
    """Whether some policy completed other jobs than another at the same seed."""
    by_seed: dict[int, set[frozenset[str]]] = {}
    for one in (outcome for found in outcomes.values() for outcome in found):
        done = frozenset(job.job_id for job in one.jobs if job.state == JobState.COMPLETED)
        by_seed.setdefault(one.result.seed, set()).add(done)
    return any(len(different) > 1 for different in by_seed.values())


def _verdict(group: str, measure: Measure, outcomes: Mapping[str, Sequence[Simulated]]) -> Verdict | None:
    runs = dict(zip(outcomes, each_once(*outcomes.values()), strict=True))
    found = at_shared_seeds({arm: by_seed(each, measure.metric) for arm, each in runs.items()})
    if not all(found.values()):
        return None
    by_arm = {arm: [value / measure.scale for value in values] for arm, values in found.items()}
    means = {arm: sum(values) / len(values) for arm, values in by_arm.items()}
    best, *rest = sorted(means, key=lambda arm: means[arm])
    others = tuple(
        Distance(
            arm=arm,
            mean=means[arm],
            difference=summary(list(map(difference, by_arm[arm], by_arm[best]))),
        )
        for arm in rest
    )
    return Verdict(
        group=group,
        measure=measure.title,
        unit=measure.unit,
        best=best,
        mean=means[best],
        others=others,
        text=_text(best, means[best], measure.unit, others),
    )


def _text(best: str, mean: float, unit: str, others: Sequence[Distance]) -> str:
    value = f"{figure(mean)} {unit}".rstrip()
    rest = [one for one in others if not one.level]
    if not rest:
        return f"no difference: {value}"
    leaders = _leaders(best, others)
    who, several = _listed(leaders, "and"), len(leaders) > 1
    below = _listed([_below(one) for one in rest if one.apart], "and")
    unsure = _listed([f"{one.arm} ({_amount(one)})" for one in rest if not one.apart], "or")
    if not unsure:
        return f"{who} {'are' if several else 'is'} best with {value}: {below}"
    seeds = len(others[0].difference.values)
    tell = f"{'do' if seeds > 1 else 'does'} not tell {'them' if several else 'it'} from"
    doubt = f"{seeds} {'seeds' if seeds > 1 else 'seed'} {tell} {unsure}"
    least = f"{who} {'have' if several else 'has'} least, {value}"
    return least + (f": {below}; {doubt}" if below else f", but {doubt}")


def _leaders(best: str, others: Sequence[Distance]) -> list[str]:
    return [best, *(one.arm for one in others if one.level)]


def _below(one: Distance) -> str:
    share = one.difference.mean / one.mean
    percent = f"{share:.0%}" if share >= LEAST_SHARE else "less than 1%"
    if share < 1.0 and percent == "100%":
        percent = "more than 99%"
    return f"{percent} below {one.arm} (by {spread(one.difference, marked=False)})"


def _amount(one: Distance) -> str:
    return spread(one.difference, signed=True, marked=False)


def _listed(texts: Sequence[str], last: str) -> str:
    *first, end = texts or [""]
    return f"{', '.join(first)} {last} {end}" if first else end


def in_short(found: Sequence[Verdict]) -> str:
    """The verdicts in one sentence."""
    best: dict[str, list[str]] = {}
    for one in found:
        if one.decided:
            who = f"{_listed(one.leaders, 'and')} {'are' if len(one.leaders) > 1 else 'is'}"
            best.setdefault(who, []).append(one.measure)
    open_ones = [one.measure for one in found if not one.decided and not one.level]
    level = [one.measure for one in found if one.level]
    parts = [f"{who} best in {_listed(measures, 'and')}" for who, measures in best.items()]
    if open_ones:
        undecided = "undecided is" if len(open_ones) == 1 else "undecided are"
        parts.append(f"{undecided if parts else 'no policy is best for sure in'} {_listed(open_ones, 'and')}")
    if level:
        parts.append(f"there is no difference in {_listed(level, 'and')}")
    return "; ".join(parts)


def warnings(outcomes: Mapping[str, Sequence[Simulated]]) -> list[str]:
    """Warnings about a table that says little, or not of every seed."""
    return [
        *_of_cut_jobs(outcomes),
        *_of_other_jobs(outcomes),
        *_of_fewer_seeds(outcomes),
        *_of_seeds(outcomes),
    ]


def _of_cut_jobs(outcomes: Mapping[str, Sequence[Simulated]]) -> Iterator[str]:
    """Of one policy's runs: all have the same jobs."""
    runs = next(iter(outcomes.values()), ())
    cut = sum(len(one.result.cut) for one in runs)
    if cut:
        jobs = sum(len(one.jobs) + len(one.result.refused) for one in runs)
        yield f"{cut} of {jobs} jobs have fewer GPUs than the trace says; `hopyard simulate` names them."


def _of_other_jobs(outcomes: Mapping[str, Sequence[Simulated]]) -> list[str]:
    if not _unlike(outcomes):
        return []
    counts = {
        arm: sum(job.state == JobState.COMPLETED for one in found for job in one.jobs)
        for arm, found in outcomes.items()
    }
    said = _listed([f"{arm} {count}" for arm, count in counts.items()], "and")
    return [f"No verdict: figures are of different jobs, since not all policies completed the same ({said})."]


def _of_fewer_seeds(outcomes: Mapping[str, Sequence[Simulated]]) -> Iterator[str]:
    every = sorted({outcome.result.seed for found in outcomes.values() for outcome in found})
    measures: dict[tuple[int, ...], list[str]] = {}
    for measure in HEADLINE:
        values = {arm: by_seed(found, measure.metric) for arm, found in outcomes.items()}
        if any(values.values()):
            measures.setdefault(tuple(shared_seeds(values)), []).append(measure.title)
    for seeds, titles in measures.items():
        if list(seeds) != every:
            which = _listed([*map(str, seeds)], "and")
            shared = f"{'seeds' if len(seeds) > 1 else 'seed'} {which}" if seeds else "no seed"
            yield f"Every policy has {', '.join(titles)} at {shared} only; other seeds are left out there."


def _of_seeds(outcomes: Mapping[str, Sequence[Simulated]]) -> list[str]:
    seeds = {outcome.result.seed for found in outcomes.values() for outcome in found}
    alike = [arm for arm, found in outcomes.items() if repeated(found)]
    if len(alike) == len(outcomes):
        return [f"All {len(seeds)} seeds gave the same run of every policy: there is no interval."]
    if alike:
        said = f"All seeds gave the same run of {_listed(alike, 'and')}, whose figures so have no interval."
        return [said, *_of_interval(outcomes)]
    return _of_interval(outcomes)


def _of_interval(outcomes: Mapping[str, Sequence[Simulated]]) -> list[str]:
    found = (values_of(outcomes, measure.metric) for measure in HEADLINE)
    cells = [values for by_arm in found for values in by_arm.values() if values]
    seeds = max(map(len, cells), default=0)
    if seeds == 1:
        return [f"One seed has no interval: a difference may be chance. Try --seeds {ENOUGH_SEEDS}."]
    vague = sum(says_little(summary(values)) for values in cells)
    if not vague:
        return []
    more = ENOUGH_SEEDS if seeds < ENOUGH_SEEDS else 2 * seeds
    said = f"{vague} of {len(cells)} intervals, marked ?, are wider than half of their figure"
    return [f"{said}: {seeds} seeds say little about these. Try --seeds {more}."]
