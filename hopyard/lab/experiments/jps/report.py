"""The report of the JPS experiment, beside what the paper prints. Pure.

Completion times count from the first start of any job, as in the paper; the report gives the time before it
separately. Policies that draw run once per seed; means have intervals over seeds.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from hopyard.lab.experiments.jps import cases, printed
from hopyard.lab.experiments.jps.printed import Printed
from hopyard.lab.report import pictures
from hopyard.lab.report.document import Figure, Part, Picture, Table
from hopyard.lab.report.figures import OfRun, mean_of
from hopyard.lab.report.statistics import Summary
from hopyard.lab.runs.cases import Finished, arms_of, groups_of, places_of
from hopyard.lab.runs.trials import Simulated

JCT, MAKESPAN = "mean completion time", "makespan"
BEST = "exhaustive"


def completion_s(outcome: Simulated) -> float | None:
    """Mean Λ, seconds from the first start of a job; None if none completed, as of the makespan."""
    ends = _ends_s(outcome)
    return sum(ends) / len(ends) if ends else None


def makespan_s(outcome: Simulated) -> float | None:
    return max(_ends_s(outcome), default=None)


def before_s(outcome: Simulated) -> float | None:
    """Seconds of profiling, planning and the first start; None if no job started."""
    started = _starts(outcome)
    return min(started) - outcome.began_at if started else None


def _ends_s(outcome: Simulated) -> list[float]:
    """Seconds from the first start of a job to each completion."""
    ends = [job.ended_at for job in outcome.jobs if job.ended_at is not None and job.jct_s is not None]
    started = _starts(outcome)
    return [end - min(started) for end in ends] if started else []


def _starts(outcome: Simulated) -> list[float]:
    return [job.started_at for job in outcome.jobs if job.started_at is not None]


MEASURES: Mapping[str, OfRun] = {JCT: completion_s, MAKESPAN: makespan_s}


def report(finished: Sequence[Finished]) -> Iterator[Part]:
    groups = groups_of(finished)
    yield _preface(finished)
    for group, members in groups.items():
        yield f"## {group}"
        yield from PARTS[group](members)
    if cases.ONCE in groups and cases.RESETS in groups:
        yield from _gain(arms_of(groups[cases.ONCE]), arms_of(groups[cases.RESETS]))


def figures_of(finished: Sequence[Finished]) -> list[Figure]:
    """Every measure of every arm that has it."""
    return [
        figure
        for group, members in groups_of(finished).items()
        for at, here in _places(members)
        for arm, outcomes in arms_of(here).items()
        for measure in MEASURES
        if (figure := _figure(group, arm, measure, outcomes, at)) is not None
    ]


def _places(members: list[Finished]) -> list[tuple[float | None, list[Finished]]]:
    """The runs by place in the sweep; outside of a sweep all under None."""
    return [*places_of(members).items()] or [(None, members)]


def _figure(
    group: str, arm: str, measure: str, outcomes: Sequence[Simulated], at: float | None
) -> Figure | None:
    """None where no job of the arm completed."""
    value = mean_of(outcomes, MEASURES[measure])
    if value is None:
        return None
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
    starts = mean_of([one.outcome for one in finished], before_s)
    took = "–" if starts is None else f"{starts.mean:.0f} s"
    return (
        "Times are counted from the first start of a job, as in the paper; profiling and start-up before it "
        f"take {took} on average. A policy that draws nothing decides the same with every seed, "
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
    best = _mean(members, BEST)
    rows = [
        [
            f"**{arm}**",
            _spread(mean_of(found, completion_s)),
            _seconds(said[arm].jct_s if arm in said else None),
            _seconds(equations.get(arm)),
            _above(_mean(members, arm), best),
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
    rows = [
        [
            f"{at:.0f}, 5, {10 - at:.0f}",
            *(_spread(mean_of(arms_of(here).get(arm, []), completion_s)) for arm in arms),
            _above(_mean(here, "has"), _mean(here, BEST)),
            _share(printed.HETEROGENEITY[int(at)]),
        ]
        for at, here in places_of(members).items()
    ]
    heads = [">V100, P100, T4", *(f">{arm}, s" for arm in arms), ">has above exhaustive", ">paper"]
    yield Table(heads, rows)


def _errors(members: Sequence[Finished]) -> Iterator[Part]:
    places = places_of(members)
    known = {arm: _mean(places.get(0.0, []), arm) for arm in arms_of(members)}
    rows = [
        [
            f"{at:.0f}",
            *(
                f"{_spread(mean_of(arms_of(here).get(arm, []), completion_s))} "
                f"({_above(_mean(here, arm), known[arm])})"
                for arm in known
            ),
        ]
        for at, here in places.items()
    ]
    yield Table([">error, %", *(f">{arm}, s (above no error)" for arm in known)], rows)
    said = ", ".join(f"{arm} {_share(value)}" for arm, value in printed.ERRORS_30.items())
    yield f"The paper at 30 %, above the lowest: {said}."


def _sizes(members: Sequence[Finished]) -> Iterator[Part]:
    largest = {arm: said.jct_s for arm, said in printed.ONCE_300.items()}
    arms = list(arms_of(members))
    rows = [
        [
            f"{at:.0f}",
            *(_spread(mean_of(arms_of(here).get(arm, []), completion_s)) for arm in arms),
            *(_seconds(largest.get(arm) if at == cases.SIZES_OF[-1] else None) for arm in arms),
        ]
        for at, here in places_of(members).items()
    ]
    yield Table([">GPUs", *(f">{arm}, s" for arm in arms), *(f">paper: {arm}" for arm in arms)], rows)
    yield from _picture(members, "sizes", "GPUs")


def _picture(members: Sequence[Finished], name: str, label: str) -> Iterator[Picture]:
    arms = list(arms_of(members))
    points = {
        arm: {
            at: found
            for at, here in places_of(members).items()
            if (found := mean_of(arms_of(here).get(arm, []), completion_s)) is not None
        }
        for arm in arms
    }
    if any(points.values()):
        caption = f"Mean completion time, s, with 95 % intervals over seeds, by {label}."
        yield Picture(name, caption, pictures.sweep({f"{JCT}, s": points}, arms, label))


# ---- decided again


def _resets(members: Sequence[Finished]) -> Iterator[Part]:
    outcomes = arms_of(members)
    rows = [
        [
            f"**{arm}**",
            *(_spread(mean_of(found, measure)) for measure in MEASURES.values()),
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
            *(_apart(found, once[arm], measure) for measure in MEASURES.values()),
        ]
        for arm, found in again.items()
        if arm in once
    ]
    said = [f"{_share(low)} to {_share(high)}" for low, high in printed.RESETS.values()]
    yield Table(["against deciding once", *(f">{name}" for name in MEASURES)], [*rows, ["*paper*", *said]])


def _against(has: Sequence[Simulated], gavel: Sequence[Simulated]) -> str:
    ours = ", ".join(f"{name} {_apart(has, gavel, measure)}" for name, measure in MEASURES.items())
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


def _mean(members: Sequence[Finished], arm: str) -> float | None:
    found = mean_of(arms_of(members).get(arm, []), completion_s)
    return None if found is None else found.mean


def _spread(value: Summary | None) -> str:
    if value is None:
        return "–"
    return f"{value.mean:,.1f}" + (f" ± {value.half_width:,.1f}" if value.half_width else "")


def _seconds(value: float | None) -> str:
    return "" if value is None else f"*{value:,.1f}*"


def _above(value: float | None, best: float | None) -> str:
    return "" if value is None or best is None else _share(value / best - 1.0)


def _apart(mine: Sequence[Simulated], others: Sequence[Simulated], measure: OfRun) -> str:
    """How much larger a mean is than another one, as a share of that."""
    value, other = mean_of(mine, measure), mean_of(others, measure)
    return "–" if value is None or other is None else _share(value.mean / other.mean - 1.0)


def _share(value: float | None) -> str:
    return "" if value is None else f"{100 * value:+.2f} %"
