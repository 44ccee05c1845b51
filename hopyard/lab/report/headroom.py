"""How far a run is from the clairvoyant bound, and where its GPU time went. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from math import fsum

from hopyard.lab.report import pictures
from hopyard.lab.report.document import Figure, Part, Picture, Table
from hopyard.lab.report.figures import named
from hopyard.lab.report.measures import HEADLINE, Measure, figure, spread
from hopyard.lab.report.statistics import Summary, summary
from hopyard.lab.runs.cases import Finished, arms_of, at_shared_seeds, each_once, values_of, without_copies
from hopyard.lab.runs.trials import GpuTime, Simulated
from hopyard.show.units import plural

BOUNDED = tuple(measure for measure in HEADLINE if measure.metric in ("makespan_s", "jct_s_mean"))

ASSUMES = (
    "The bound is of a scheduler that knows every job and every true speed in advance, always has the best "
    "nodes of a type, and never pays for a start, a checkpoint, a profile or a round: linear programs over "
    "time shared between places, one place a job at a time, its gangs in lockstep. A policy whose jobs train "
    "with unlike shares, train copies on several nodes at once, or share a GPU in turns, could pass it. No "
    "schedule need reach it."
)

NOISE = 1e-3
"""a run may be below its bound by this share, since true speeds are means over draws"""

PARTS: Mapping[str, str] = {
    "useful": "useful, on the best type",
    "slower_types": "slower types",
    "gangs": "gangs",
    "restarts": "restarts",
    "profiling": "profiling",
    "beside_waiting": "idle beside waiting jobs",
    "idle": "idle, nobody waits",
}
"""fields of `GpuTime`, as they are shown"""

SAID = (
    "Of all GPU time from the first submission to the last end: the time that the samples would have taken "
    "on single GPUs of each job's fastest type; what slower types, and gangs (their first starts too), took "
    "more; what stopping and resuming cost; and what was idle."
)


def bounds(finished: Sequence[Finished]) -> Iterator[Part]:
    """Ratios to the bound, an arm a row; nothing where no bound is known."""
    known = [one for one in finished if one.bound is not None and not one.bound.unknown]
    if not known:
        yield from (f"There is no bound: {reason}." for reason in _unknown(finished))
        return
    yield "### How far from the possible"
    headings = (f">{m.title}, {what}" for m in BOUNDED for what in (m.unit, "× the bound"))
    columns = [_columns(known, measure) for measure in BOUNDED]
    rows = [
        ["*the bound*", *_of_bound(known)],
        *([f"**{arm}**", *(cell for column in columns for cell in column[arm])] for arm in arms_of(known)),
    ]
    yield Table(["", *headings], rows)
    left = max(one.bound.left_out for one in known if one.bound is not None)
    yield ASSUMES + (f" Left out of it: {plural(left, 'job')} for which there is no place." if left else "")
    yield from (f"Some runs have no bound: {reason}." for reason in _unknown(finished))
    yield from (f"> {said}" for said in faults(finished))


def faults(finished: Sequence[Finished]) -> Iterator[str]:
    """A sentence on each arm and measure with runs below their bound."""
    for measure in BOUNDED:
        for arm, by_seed in _ratios(finished, measure.metric).items():
            below = {seed: ratio for seed, ratio in by_seed.items() if ratio < 1.0 - NOISE}
            if below:
                seed = min(below, key=lambda each: below[each])
                yield (
                    f"{arm} is below the bound of its {measure.title} in {len(below)} of {len(by_seed)} runs "
                    f"(× {figure(below[seed])} at seed {seed}). Unless its jobs train with unlike shares, in "
                    "copies or in turns, that bound is wrong: please report it."
                )


def ratios(finished: Sequence[Finished], metric: str) -> dict[str, list[float]]:
    """Metric / bound by arm, one a shared seed that has both."""
    return without_copies(arms_of(finished), at_shared_seeds(_ratios(finished, metric)))


def _ratios(finished: Sequence[Finished], metric: str) -> dict[str, dict[int, float]]:
    """Metric / bound by arm and seed, where there are both."""
    found: dict[str, dict[int, float]] = {arm: {} for arm in arms_of(finished)}
    for one in finished:
        value, bound = one.outcome.result.metrics.get(metric), _bound(one, metric)
        if value is not None and bound is not None:
            found[one.case.arm][one.case.seed] = value / bound
    return found


def gpu_time(outcomes: Mapping[str, Sequence[Simulated]], prefix: str) -> Iterator[Part]:
    """A table and a picture; nothing where no run has any."""
    shares = {arm: found for arm, each in outcomes.items() if (found := _shares(each))}
    if not shares:
        return
    yield "### Where the GPU time went"
    yield SAID
    rows = [
        [title, *(spread(each[part], 0.01, marked=False) for each in shares.values())]
        for part, title in PARTS.items()
    ]
    yield Table(["% of GPU time", *(f">{arm}" for arm in shares)], rows)
    means = {
        arm: {PARTS[part]: max(one.mean, 0.0) for part, one in each.items()} for arm, each in shares.items()
    }
    yield Picture(f"{prefix}-gpu-time", "Where the GPU time went, mean over seeds.", pictures.stacked(means))


def gpu_time_figures(
    group: str, outcomes: Mapping[str, Sequence[Simulated]], at: float | None = None
) -> Iterator[Figure]:
    for arm, each in outcomes.items():
        for part, found in _shares(each).items():
            percent = summary([100 * value for value in found.values])
            yield named(group, arm, f"{PARTS[part]}, of GPU time, %", percent, at)


def _shares(outcomes: Sequence[Simulated]) -> dict[str, Summary]:
    [runs] = each_once(outcomes)
    times = [outcome.gpu_time for outcome in runs if outcome.gpu_time is not None]
    wholes = [fsum(getattr(time, part) for part in PARTS) for time in times]
    pairs = [(time, whole) for time, whole in zip(times, wholes, strict=True) if whole > 0]
    return {part: summary([getattr(time, part) / whole for time, whole in pairs]) for part in PARTS if pairs}


def _unknown(finished: Sequence[Finished]) -> list[str]:
    bounds = (one.bound for one in finished if one.bound is not None)
    return list(dict.fromkeys(bound.unknown for bound in bounds if bound.unknown))


def _of_bound(finished: Sequence[Finished]) -> Iterator[str]:
    by_seed = {one.case.seed: one for one in finished}
    for measure in BOUNDED:
        found = [bound for one in by_seed.values() if (bound := _bound(one, measure.metric)) is not None]
        found = found[:1] if len(set(found)) == 1 else found
        yield spread(summary(found), measure.scale) if found else "–"
        yield figure(1.0)


def _columns(finished: Sequence[Finished], measure: Measure) -> dict[str, tuple[str, str]]:
    """The measure and its ratio to the bound, by arm."""
    values, over = values_of(arms_of(finished), measure.metric), ratios(finished, measure.metric)
    return {
        arm: (
            spread(summary(found), measure.scale) if found else "–",
            spread(summary(over[arm])) if over[arm] else "–",
        )
        for arm, found in values.items()
    }


def _bound(one: Finished, metric: str) -> float | None:
    value: float | None = getattr(one.bound, metric) if one.bound is not None else None
    return value


assert set(PARTS) == set(GpuTime.__struct_fields__), "every part has a name"
