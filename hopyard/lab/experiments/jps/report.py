"""The report of the JPS experiment, beside what the paper prints. Pure.

Completion times count from the first start of any job, as in the paper; the report gives the time before it
separately. Policies that draw run once per seed; means have intervals over seeds.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from hopyard.lab.experiments.jps import cases, printed
from hopyard.lab.experiments.jps.printed import Printed
from hopyard.lab.report import pictures
from hopyard.lab.report.document import Figure, Part, Picture, Table
from hopyard.lab.report.statistics import Summary, summary
from hopyard.lab.runs.cases import Finished, arms_of, each_once, groups_of, places_of
from hopyard.lab.runs.trials import Simulated

JCT, MAKESPAN = "mean completion time", "makespan"
Seconds = Callable[[Simulated], float]
BEST = "exhaustive"


def completion_s(outcome: Simulated) -> float:
    """Mean Λ, seconds from the first start of a job."""
    ends = [job.ended_at for job in outcome.jobs if job.ended_at is not None]
    return sum(ends) / len(ends) - _origin(outcome)


def makespan_s(outcome: Simulated) -> float:
    return max(job.ended_at for job in outcome.jobs if job.ended_at is not None) - _origin(outcome)


def before_s(outcome: Simulated) -> float:
    """Seconds of profiling, planning and the first start."""
    return _origin(outcome) - outcome.began_at


def _origin(outcome: Simulated) -> float:
    return min(job.started_at for job in outcome.jobs if job.started_at is not None)


MEASURES: Mapping[str, Seconds] = {JCT: completion_s, MAKESPAN: makespan_s}


def report(finished: Sequence[Finished]) -> Iterator[Part]:
    groups = groups_of(finished)
    yield _preface(finished)
    for group, members in groups.items():
        yield f"## {group}"
        yield from PARTS[group](members)
    if cases.ONCE in groups and cases.RESETS in groups:
        yield from _gain(arms_of(groups[cases.ONCE]), arms_of(groups[cases.RESETS]))


def figures_of(finished: Sequence[Finished]) -> list[Figure]:
    """Every measure of every arm."""
    return [
        _figure(group, arm, measure, outcomes, at)
        for group, members in groups_of(finished).items()
        for at, here in _places(members)
        for arm, outcomes in arms_of(here).items()
        for measure in MEASURES
    ]


def _places(members: list[Finished]) -> list[tuple[float | None, list[Finished]]]:
    """The runs by place in the sweep; outside of a sweep all under None."""
    return [*places_of(members).items()] or [(None, members)]


def _figure(group: str, arm: str, measure: str, outcomes: Sequence[Simulated], at: float | None) -> Figure:
    value = _summary(outcomes, MEASURES[measure])
    once = group in {cases.ONCE, cases.ONCE_MORE} and measure == JCT
    said = ONCE_TABLES.get(outcomes[0].result.scenario, {}).get(arm) if once else None
    return Figure(
        group=group,
        arm=arm,
        measure=measure,
        unit="s",
        mean=value.mean,
        half_width=value.half_width,
        values=value.values,
        at=at,
        paper=said.jct_s if said else None,
    )


def _preface(finished: Sequence[Finished]) -> str:
    starts = _summary([one.outcome for one in finished], before_s)
    return (
        "Times are counted from the first start of a job, as in the paper; profiling and start-up before it "
        f"take {starts.mean:.0f} s on average. A policy that draws nothing decides the same with every seed, "
        "and runs once. *Paper*: figures as printed; *by equations*: reconstructed speeds put into the "
        "paper's equations, without a simulation."
    )


# ---- decided once

ONCE_TABLES: Mapping[str, Mapping[str, Printed]] = {
    "jps-15": printed.ONCE_15,
    "jps-30": printed.ONCE_30,
}
"""what the paper prints, by scenario"""


def _once(members: Sequence[Finished]) -> Iterator[Part]:
    scenario = members[0].outcome.result.scenario
    said = ONCE_TABLES.get(scenario, {})
    equations = printed.RECONSTRUCTED_15 if scenario == cases.SCENARIO else {}
    outcomes = arms_of(members)
    best = _summary(outcomes[BEST], completion_s).mean if BEST in outcomes else None
    rows = [
        [
            f"**{arm}**",
            _spread(_summary(found, completion_s)),
            _seconds(said[arm].jct_s if arm in said else None),
            _seconds(equations.get(arm)),
            _above(_summary(found, completion_s).mean, best),
            _share(said[arm].above if arm in said else None),
            str(len(found)),
        ]
        for arm, found in outcomes.items()
    ]
    heads = ["", f">{JCT}, s", ">paper", ">by equations", ">above the best", ">paper", ">runs"]
    yield Table(heads, rows)


# ---- sweeps


def _mix(members: Sequence[Finished]) -> Iterator[Part]:
    arms = list(arms_of(members))
    both = BEST in arms and "has" in arms
    rows = [
        [
            f"{at:.0f}, 5, {10 - at:.0f}",
            *(_spread(_summary(arms_of(here)[arm], completion_s)) for arm in arms),
            _above(_mean(here, "has"), _mean(here, BEST)) if both else "",
            _share(printed.HETEROGENEITY[int(at)]),
        ]
        for at, here in places_of(members).items()
    ]
    heads = [">V100, P100, T4", *(f">{arm}, s" for arm in arms), ">has above exhaustive", ">paper"]
    yield Table(heads, rows)


def _errors(members: Sequence[Finished]) -> Iterator[Part]:
    places = places_of(members)
    known = {arm: _mean(places[0.0], arm) for arm in arms_of(members)}
    rows = [
        [
            f"{at:.0f}",
            *(
                f"{_spread(_summary(found, completion_s))} ({_above(_mean(here, arm), known[arm])})"
                for arm, found in arms_of(here).items()
            ),
        ]
        for at, here in places.items()
    ]
    yield Table([">error, %", *(f">{arm}, s (above no error)" for arm in known)], rows)
    said = ", ".join(f"{arm} {_share(value)}" for arm, value in printed.ERRORS_30.items())
    yield f"The paper at 30 %, above the lowest: {said}."


def _sizes(members: Sequence[Finished]) -> Iterator[Part]:
    largest = {arm: said.jct_s for arm, said in printed.ONCE_300.items()}
    rows = [
        [
            f"{at:.0f}",
            *(_spread(_summary(found, completion_s)) for found in arms_of(here).values()),
            *(_seconds(largest.get(arm) if at == cases.SIZES_OF[-1] else None) for arm in arms_of(here)),
        ]
        for at, here in places_of(members).items()
    ]
    arms = list(arms_of(members))
    yield Table([">GPUs", *(f">{arm}, s" for arm in arms), *(f">paper: {arm}" for arm in arms)], rows)
    yield _picture(members, "sizes", "GPUs")


def _picture(members: Sequence[Finished], name: str, label: str) -> Picture:
    arms = list(arms_of(members))
    points = {
        arm: {
            at: _summary(arms_of(here)[arm], completion_s)
            for at, here in places_of(members).items()
            if arm in arms_of(here)
        }
        for arm in arms
    }
    caption = f"Mean completion time, s, with 95 % intervals over seeds, by {label}."
    return Picture(name, caption, pictures.sweep({f"{JCT}, s": points}, arms, label))


# ---- decided again


def _resets(members: Sequence[Finished]) -> Iterator[Part]:
    outcomes = arms_of(members)
    rows = [
        [
            f"**{arm}**",
            *(_spread(_summary(found, measure)) for measure in MEASURES.values()),
            f"{sum(job.restarts for outcome in found for job in outcome.jobs) / len(found):.1f}",
        ]
        for arm, found in outcomes.items()
    ]
    yield Table(["", *(f">{name}, s" for name in MEASURES), ">restarts"], rows)
    if "has" in outcomes and cases.GAVEL in outcomes:
        yield _against(outcomes["has"], outcomes[cases.GAVEL])


def _gain(
    once: Mapping[str, Sequence[Simulated]], again: Mapping[str, Sequence[Simulated]]
) -> Iterator[Part]:
    """Resets against deciding once."""
    rows = [
        [
            f"**{arm}**",
            *(_above(_summary(found, one).mean, _summary(once[arm], one).mean) for one in MEASURES.values()),
        ]
        for arm, found in again.items()
        if arm in once
    ]
    said = [f"{_share(low)} to {_share(high)}" for low, high in printed.RESETS.values()]
    yield Table(["against deciding once", *(f">{name}" for name in MEASURES)], [*rows, ["*paper*", *said]])


def _against(has: Sequence[Simulated], gavel: Sequence[Simulated]) -> str:
    ratios = {
        name: _summary(has, measure).mean / _summary(gavel, measure).mean - 1.0
        for name, measure in MEASURES.items()
    }
    ours = ", ".join(f"{name} {_share(ratio)}" for name, ratio in ratios.items())
    theirs = ", ".join(f"{name} {_share(ratio)}" for name, ratio in printed.AGAINST_GAVEL.items())
    return f"HAS / Gavel − 1: {ours}. The paper, which does not say relative to what: {theirs}."


PARTS: Mapping[str, Callable[[Sequence[Finished]], Iterator[Part]]] = {
    cases.ONCE: _once,
    cases.ONCE_MORE: _once,
    cases.MIX: _mix,
    cases.ERRORS: _errors,
    cases.SIZES: _sizes,
    cases.RESETS: _resets,
}


# ---- cells


def _summary(outcomes: Sequence[Simulated], measure: Seconds) -> Summary:
    [runs] = each_once(outcomes)
    return summary([measure(outcome) for outcome in runs])


def _mean(members: Sequence[Finished], arm: str) -> float:
    return _summary(arms_of(members)[arm], completion_s).mean


def _spread(value: Summary) -> str:
    return f"{value.mean:,.1f}" + (f" ± {value.half_width:,.1f}" if value.half_width else "")


def _seconds(value: float | None) -> str:
    return "" if value is None else f"*{value:,.1f}*"


def _above(value: float, best: float | None) -> str:
    return "" if best is None else _share(value / best - 1.0)


def _share(value: float | None) -> str:
    return "" if value is None else f"{100 * value:+.2f} %"
