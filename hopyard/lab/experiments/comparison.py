"""Reports of grids of simulations: tables beside the paper's, paired differences, curves. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from statistics import median

from hopyard.lab.experiments import paper
from hopyard.lab.experiments.remarks import remarks_of
from hopyard.lab.report import headroom, pictures
from hopyard.lab.report.causes import causes
from hopyard.lab.report.document import Figure, Folded, Part, Picture, Table
from hopyard.lab.report.figures import apart, by_job, further_apart, job_by_job
from hopyard.lab.report.gantt import gantt_svg
from hopyard.lab.report.measures import (
    FURTHER,
    HEADLINE,
    JOB_MEASURES,
    Measure,
    explained,
    figure,
    spread,
)
from hopyard.lab.report.statistics import Summary, summary
from hopyard.lab.report.verdicts import in_short, verdicts, warnings
from hopyard.lab.runs.cases import Finished, arms_of, groups_of, places_of, values_of
from hopyard.lab.runs.trials import Simulated, plain
from hopyard.show.units import duration, whole_share
from loadgen.simulation import SIMULATED_SETTINGS
from schemas.results import JobResult

HOUR_S = 3600.0
HEADINGS = tuple(measure.heading for measure in HEADLINE)
JCT_H = "JCT, hours"
FAR = 30
"""an axis is logarithmic if the largest value is above this many medians"""
LISTED_AT_MOST = 1000
"""jobs in a list of them"""
OVER_BOUND = tuple(Measure(measure.metric, f"{measure.title} over its bound") for measure in headroom.BOUNDED)
SWEPT = ("jct_s_mean", "makespan_s", "lr_max")


def figures_of(finished: Sequence[Finished], reported: paper.Reported) -> list[Figure]:
    """Every measure of every arm, in the unit it is shown in; the paper's beside the group of its setting."""
    return (
        [
            _figure(group, arm, measure, found=found, at=at, reported=reported if index == 0 else {})
            for index, (group, members) in enumerate(groups_of(finished).items())
            for at, here in _places(members)
            for outcomes in [arms_of(here)]
            for arm in outcomes
            for measure in (*HEADLINE, *FURTHER)
            if (found := values_of(outcomes, measure.metric)[arm])
        ]
        + [
            _figure(group, arm, over, found=found, at=at, reported={})
            for group, members in groups_of(finished).items()
            for at, here in _places(members)
            for arm in arms_of(here)
            for over in OVER_BOUND
            if (found := headroom.ratios(here, over.metric)[arm])
        ]
        + [
            figure
            for group, members in groups_of(finished).items()
            for at, here in _places(members)
            for figure in (
                *headroom.gpu_time_figures(group, arms_of(here), at),
                *apart(group, arms_of(here), at),
            )
        ]
    )


def leads_of(finished: Sequence[Finished]) -> Iterator[Figure]:
    """How the distance of every arm from the first grows along a sweep."""
    for group, members in groups_of(finished).items():
        by_place = {at: arms_of(here) for at, here in places_of(members).items()}
        yield from further_apart(group, by_place)


def compared(finished: Sequence[Finished], reported: paper.Reported, source: str) -> Iterator[Part]:
    """One section a group. `source`: where in the paper its figures stand."""
    arms = list(arms_of(finished))
    for index, (group, members) in enumerate(groups_of(finished).items()):
        outcomes = arms_of(members)
        yield f"## {group[0].upper()}{group[1:]}"
        yield _conditions(members)
        yield from _judged(group, outcomes, reported if index == 0 else {}, source)
        yield from _remarks(members)
        yield from headroom.bounds(members)
        yield from headroom.gpu_time(outcomes, f"group-{index + 1}")
        yield from _differences(outcomes)
        yield from _pictures(outcomes, arms, f"group-{index + 1}")
        yield from _last(outcomes)


def by_rule(finished: Sequence[Finished], reported: paper.Reported, source: str) -> Iterator[Part]:
    """As `compared`, for the rules of one policy's queue: without measures in which only policies differ."""
    outcomes = arms_of(finished)
    yield "## The rules side by side"
    yield _conditions(finished)
    yield from _judged(finished[0].case.group, outcomes, reported, source)
    yield from _cdfs(outcomes, list(outcomes), "distributions")
    yield from headroom.gpu_time(outcomes, "group-1")
    yield from _differences(outcomes)
    yield from _last(outcomes)


def swept(finished: Sequence[Finished], label: str) -> Iterator[Part]:
    """Measures over the places of a sweep."""
    arms = list(arms_of(finished))
    yield f"## By {label}"
    yield _conditions(finished)
    yield explained(HEADINGS)
    chosen = [measure for measure in HEADLINE if measure.metric in SWEPT]
    panels = {measure.heading: _summaries(finished, measure) for measure in chosen}
    panels = {heading: found for heading, found in panels.items() if any(found.values())}
    if panels:
        caption = f"Mean and 95 % interval over seeds, by {label}."
        yield Picture("sweep", caption, pictures.sweep(panels, arms, label))
    for measure in HEADLINE:
        yield f"### {measure.heading[0].upper()}{measure.heading[1:]}"
        found = _summaries(finished, measure)
        rows = [
            [figure(place), *(spread(found[arm].get(place)) for arm in arms)] for place in places_of(finished)
        ]
        yield Table([f">{label}", *(f">{arm}" for arm in arms)], rows)


def _judged(
    group: str, outcomes: Mapping[str, Sequence[Simulated]], reported: paper.Reported, source: str
) -> Iterator[Part]:
    """The headline, its meaning, and warnings."""
    found = verdicts(group, outcomes)
    if found:
        sentence = in_short(found)
        yield f"**{sentence[0].upper()}{sentence[1:]}.**"
    yield _headline(outcomes, reported, source)
    for warning in warnings(outcomes):
        yield f"> {warning}"
    yield explained(HEADINGS)
    if found:
        yield "In words, with differences seed by seed:"
        yield "\n".join(f"- **{one.measure}**: {one.text}" for one in found)


def _remarks(finished: Sequence[Finished]) -> Iterator[Part]:
    found = remarks_of(finished)
    if found:
        yield "### Out of their range"
        yield "\n".join(f"- **{arm}**: {said}" for arm, each in found.items() for said in each)


def _last(outcomes: Mapping[str, Sequence[Simulated]]) -> Iterator[Part]:
    yield "### Where time and GPUs went"
    yield causes(outcomes)
    yield "### Further measures"
    yield _table(outcomes, FURTHER)
    yield explained((measure.heading for measure in FURTHER), but=HEADINGS)


def _summaries(finished: Sequence[Finished], measure: Measure) -> dict[str, dict[float, Summary]]:
    """Arm → place → the measure in its unit."""
    found: dict[str, dict[float, Summary]] = {arm: {} for arm in arms_of(finished)}
    for place, here in places_of(finished).items():
        for arm, values in values_of(arms_of(here), measure.metric).items():
            if values:
                found[arm][place] = summary([value / measure.scale for value in values])
    return found


def _places(finished: Sequence[Finished]) -> list[tuple[float | None, list[Finished]]]:
    """Runs by place in the sweep; without a sweep all are at None."""
    return [*places_of(finished).items()] or [(None, list(finished))]


def _figure(
    group: str,
    arm: str,
    measure: Measure,
    *,
    found: Sequence[float],
    at: float | None,
    reported: paper.Reported,
) -> Figure:
    value = summary([each / measure.scale for each in found])
    return Figure(
        group=group,
        arm=arm,
        measure=measure.title,
        unit=measure.unit,
        mean=value.mean,
        half_width=value.half_width,
        values=value.values,
        at=at,
        paper=reported.get(arm, {}).get(measure.metric),
    )


def _conditions(finished: Sequence[Finished]) -> str:
    """The conditions of all results: rounds, seeds, and settings that differ."""
    results = [one.outcome.result for one in finished]
    seeds = sorted({result.seed for result in results})
    rounds = sorted({result.round_s for result in results})
    text = " or ".join(figure(each) for each in rounds)
    which = f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}"
    lines = [f"Rounds of {text} s; {which}; mean ± half of the 95 % interval over seeds."]
    chosen = {arm: _settings(outcomes[0]) for arm, outcomes in arms_of(finished).items()}
    shared = set.intersection(*map(set, chosen.values()))
    if shared:
        lines[0] += f" All have {', '.join(sorted(shared))}."
    for arm, outcomes in arms_of(finished).items():
        own = [said for said in chosen[arm] if said not in shared]
        policy = outcomes[0].result.policy
        if own or policy != arm:
            lines.append(f"- **{arm}**: " + ", ".join([f"policy `{policy}`", *own]))
    return "\n".join([lines[0], "", *lines[1:]])


def _settings(outcome: Simulated) -> list[str]:
    return [
        f"`{name}` {plain(value)}"
        for name, value in outcome.result.settings.items()
        if name not in ("seed", "policy") and name not in SIMULATED_SETTINGS
    ]


def _headline(outcomes: Mapping[str, Sequence[Simulated]], reported: paper.Reported, source: str) -> Table:
    """Our figures, and in the row below the paper's."""
    cells = _cells(outcomes, HEADLINE)
    if not any(arm in reported for arm in outcomes):
        ours = [[f"**{arm}**", *found] for arm, found in cells.items()]
        return Table(["", *(f">{heading}" for heading in HEADINGS)], ours)
    rows: list[list[str]] = []
    for arm, found in cells.items():
        rows.append([f"**{arm}**", "here", *found])
        theirs = reported.get(arm)
        if theirs is not None:
            printed = [_said(theirs.get(measure.metric)) for measure in HEADLINE]
            rows.append(["", f"*{source}*", *printed])
    return Table(["", "", *(f">{measure.heading}" for measure in HEADLINE)], rows)


def _said(value: float | None) -> str:
    return "" if value is None else f"*{value:g}*"


def _table(outcomes: Mapping[str, Sequence[Simulated]], measures: Sequence[Measure]) -> Table:
    """A row a measure, a column an arm."""
    cells = _cells(outcomes, measures)
    rows = [
        [measure.heading, *(cells[arm][index] for arm in outcomes)] for index, measure in enumerate(measures)
    ]
    return Table(["", *(f">{arm}" for arm in outcomes)], rows)


def _cells(outcomes: Mapping[str, Sequence[Simulated]], measures: Sequence[Measure]) -> dict[str, list[str]]:
    """A cell a measure, by arm."""
    found = [(measure, values_of(outcomes, measure.metric)) for measure in measures]
    return {
        arm: [
            spread(summary(values[arm]), measure.scale) if values[arm] else "–" for measure, values in found
        ]
        for arm in outcomes
    }


def _differences(outcomes: Mapping[str, Sequence[Simulated]]) -> Iterator[Part]:
    first, *others = outcomes
    if not others:
        return
    yield f"### Against {first}, job by job"
    yield (
        f"What each job would gain or lose under another policy than {first}: other − {first}, for the same "
        "job of the same seed. Mean over a seed's jobs ± half of the 95 % interval over seeds; median over "
        f"all jobs; and the share of the jobs that fare better than under {first}."
    )
    columns = ["", *(f">{measure.heading}" for measure in JOB_MEASURES), ">median JCT, min", ">better JCT"]
    rows = [_difference(outcomes[arm], outcomes[first], arm) for arm in others]
    yield Table(columns, rows)


def _difference(mine: Sequence[Simulated], others: Sequence[Simulated], arm: str) -> list[str]:
    found = [job_by_job(mine, others, measure) for measure in JOB_MEASURES]
    means = [
        "–" if one is None else spread(one.difference, measure.scale, signed=True)
        for one, measure in zip(found, JOB_MEASURES, strict=True)
    ]
    jct = found[0]
    last = ["–", "–"] if jct is None else [figure(jct.median / 60, signed=True), whole_share(jct.smaller)]
    return [f"**{arm}**", *means, *last]


def _pictures(
    outcomes: Mapping[str, Sequence[Simulated]], arms: Sequence[str], prefix: str
) -> Iterator[Part]:
    """The sections that have figures."""
    if not any(one.holds for found in outcomes.values() for one in found):
        yield "No job ever had a GPU: there is nothing to draw."
        return
    yield "### Over the jobs and over time"
    yield from _cdfs(outcomes, arms, f"{prefix}-distributions")
    throughput = {
        arm: [_curve(outcome, ((p.at, p.throughput) for p in outcome.curve)) for outcome in found]
        for arm, found in outcomes.items()
    }
    yield Picture(
        f"{prefix}-throughput",
        "Cluster throughput: samples/s of all jobs, each in units of its mean speed on one GPU. Mean over "
        "seeds; the band spans them.",
        pictures.over_time(throughput, arms, "throughput, single-GPU means"),
    )
    fragments = {arm: [_curve(one, _fragments(one)) for one in found] for arm, found in outcomes.items()}
    if any(value for found in fragments.values() for curve in found for _, value in curve):
        yield Picture(
            f"{prefix}-fragments",
            "Fragments: GPUs idle after a plan while a job that could run has none, mean of each round's "
            "plans.",
            pictures.over_time(fragments, arms, "idle GPUs beside waiting jobs"),
        )
    else:
        yield "Fragments are not drawn: no plan left a GPU idle while a job that could run waited."
    yield "### Who had which GPU"
    yield from _gantt({arm: found[0] for arm, found in outcomes.items() if found[0].holds}, prefix)


def _gantt(first: Mapping[str, Simulated], prefix: str) -> Iterator[Part]:
    """A picture of one seed, since jobs have other times at another."""
    seed = next(iter(first.values())).result.seed
    yield Picture(
        f"{prefix}-gantt",
        f"Which job had which GPU when, seed {seed}. Neighbouring colours are different jobs, white is idle. "
        "In the page a job says more of itself under the pointer; numbers are the ends of the jobs' names.",
        pictures.gantt(first),
        gantt_svg(first),
    )
    jobs = [job for outcome in first.values() for job in outcome.jobs]
    names = list(dict.fromkeys(job.job_id for job in jobs))
    by_arm = {arm: {job.job_id: job for job in outcome.jobs} for arm, outcome in first.items()}
    known = {job.job_id: job for job in jobs}
    columns = ["job", "model", ">submitted", *(f">{arm}: JCT (waited)" for arm in first)]
    rows = [
        [
            name,
            known[name].model,
            _at(known[name], first),
            *(_came_to(found.get(name)) for found in by_arm.values()),
        ]
        for name in names[:LISTED_AT_MOST]
    ]
    rest = len(names) - len(rows)
    more = f", {rest} more in data/jobs.parquet" if rest else ""
    yield Folded(f"The {len(rows)} jobs of seed {seed}{more}", Table(columns, rows))


def _at(job: JobResult, first: Mapping[str, Simulated]) -> str:
    return duration(job.submitted_at - next(iter(first.values())).began_at)


def _came_to(job: JobResult | None) -> str:
    if job is None:
        return "–"
    return job.state if job.jct_s is None else f"{duration(job.jct_s)} ({duration(job.wait_s)})"


def _cdfs(outcomes: Mapping[str, Sequence[Simulated]], arms: Sequence[str], name: str) -> Iterator[Picture]:
    """Distributions over jobs, without panels for which no job has a value."""
    panels = {
        label: {arm: _pooled(found, field, scale) for arm, found in outcomes.items()}
        for label, field, scale in (
            (JCT_H, "jct_s", HOUR_S),
            ("latency ratio", "latency_ratio", 1.0),
            ("FTF ρ", "ftf_rho", 1.0),
        )
    }
    panels = {label: found for label, found in panels.items() if any(found.values())}
    if panels:
        log = ["latency ratio", "FTF ρ", *([JCT_H] if _far_spread(panels.get(JCT_H, {})) else [])]
        drawn = pictures.distributions(panels, arms, of="jobs", log=log)
        yield Picture(name, "Distributions over the completed jobs of all seeds.", drawn)


def _far_spread(found: Mapping[str, Sequence[float]]) -> bool:
    """Whether an axis should be logarithmic, since else most jobs would be at its left edge."""
    every = [value for values in found.values() for value in values]
    return bool(every) and max(every) > FAR * median(every)


def _pooled(outcomes: Sequence[Simulated], field: str, scale: float) -> list[float]:
    by_seed = (by_job([outcome], field) for outcome in outcomes)
    return [value / scale for found in by_seed for jobs in found.values() for value in jobs.values()]


def _fragments(outcome: Simulated) -> Iterator[tuple[float, float]]:
    """(cluster seconds, mean of the round's plans)."""
    for _, plans in groupby(outcome.plans, key=lambda plan: plan.round):
        members = list(plans)
        yield members[0].at, sum(plan.fragments for plan in members) / len(members)


def _curve(outcome: Simulated, points: Iterable[tuple[float, float]]) -> pictures.Curve:
    """Seeds begin at different times: hours since the first submission of each."""
    return [((at - outcome.began_at) / HOUR_S, value) for at, value in points]
