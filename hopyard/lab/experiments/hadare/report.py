"""The report of HadarE's experiments: gains beside the paper's, the mixes, and lengths of a round. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from hopyard.lab.experiments.hadare import printed
from hopyard.lab.experiments.hadare.cases import USUAL_S, cluster_and_mix
from hopyard.lab.report import pictures
from hopyard.lab.report.document import Figure, Part, Picture, Table
from hopyard.lab.report.figures import OfRun, mean_of, named
from hopyard.lab.report.measures import figure, spread
from hopyard.lab.report.statistics import Summary, summary
from hopyard.lab.runs.cases import Finished, arms_of, groups_of, places_of
from hopyard.lab.runs.trials import Simulated

GAINS = {"cru_slots": "nodes busy by rounds", "ttd_s": "TTD", "jct_s_mean": "mean JCT"}
"""measures that are compared with those of the first policy"""
MORE_IS_BETTER = frozenset({"cru_slots"})
DRAWN = ("TTD, s", "mean JCT, s", "by rounds, %")
UNDRAWN = ("hadare-literal",)
"""not in pictures: it takes ten times as long as the others, whose curves would be one line"""
SLOTS = "by rounds, %"
BUSY = "nodes busy by rounds, %"
EXPLAINED = (
    "TTD: from submission to the last completion. Nodes busy: time with a worker, a measurement, a start and "
    "a checkpoint included, over the time until the last completion; *by rounds*: over whole rounds, as the "
    "paper divides. M*: the earliest end of all jobs that the first plan proves possible, by estimates. "
    "Merges: how often the weights of copies were averaged; steps: of the optimizer, in one copy between "
    "two merges, in the mean and at most; largest share: of the samples between two merges, the most "
    "that one copy did. What merging does to a model is not emulated; a real run would be judged by "
    "these measures."
)


def report(finished: Sequence[Finished]) -> Iterator[Part]:
    usual = [one for one in finished if one.case.at == USUAL_S]
    yield "## Against the first policy"
    yield from _gains(usual)
    for cluster, here in _clusters(usual).items():
        yield f"## The mixes on {cluster}"
        yield EXPLAINED
        yield Picture(f"{cluster}-mixes", "Mean and 95 % interval over seeds, by mix.", _drawn(here))
        yield _mixes(cluster, here)
    for cluster, here in _clusters(finished).items():
        if len(places_of(here)) > 1:
            yield f"## Lengths of a round on {cluster}"
            yield from _slots(cluster, here)


def figures_of(finished: Sequence[Finished]) -> list[Figure]:
    """Every measure of every arm by the number of jobs, gains, and busy nodes by the length of a round."""
    usual = [one for one in finished if one.case.at == USUAL_S]
    return [
        figure
        for cluster in _clusters(finished)
        for figure in (
            *_by_jobs(cluster, _clusters(usual).get(cluster, [])),
            *_pairs(cluster, _clusters(usual).get(cluster, [])),
            *_by_slot(cluster, _clusters(finished)[cluster]),
        )
    ]


def _by_jobs(cluster: str, here: Sequence[Finished]) -> Iterator[Figure]:
    for members in groups_of(here).values():
        for arm, outcomes in arms_of(members).items():
            for name in MEASURES:
                if (found := _summary(outcomes, name)) is not None:
                    yield named(cluster, arm, name, found, float(len(outcomes[0].jobs)))


def _pairs(cluster: str, here: Sequence[Finished]) -> Iterator[Figure]:
    """How many times better each arm is than each arm before it, as the mean over the mixes."""
    arms = list(arms_of(here))
    for (index, arm), (metric, heading) in product(enumerate(arms), GAINS.items()):
        for base in arms[:index]:
            if (found := _quotients(here, metric, base, arm)) is not None:
                yield named(f"{cluster}, times better than {base}", arm, heading, found)


def _by_slot(cluster: str, here: Sequence[Finished]) -> Iterator[Figure]:
    """Busy nodes of the arms that have several lengths of a round."""
    title = f"{cluster}, by length of a round"
    for arm in arms_of(here):
        places = places_of([one for one in here if one.case.arm == arm])
        for at, members in places.items() if len(places) > 1 else ():
            yield from _of_slot(title, arm, at, members, places.get(USUAL_S, []))


def _of_slot(
    title: str, arm: str, at: float, members: Sequence[Finished], usual: Sequence[Finished]
) -> Iterator[Figure]:
    """Busy nodes in every mix, their mean, and the difference of the mean from that at the usual length."""
    for group, each in groups_of(members).items():
        if (found := _summary(arms_of(each)[arm], SLOTS)) is not None:
            yield named(title, f"{arm}, {cluster_and_mix(group)[1]}", BUSY, found, at)
    means, others = _by_seed(members), _by_seed(usual)
    if means:
        yield named(title, arm, BUSY, summary([*means.values()]), at)
    more = [means[seed] - others[seed] for seed in sorted(means.keys() & others.keys())]
    if more and at != USUAL_S:
        yield named(f"{title}, less at {USUAL_S:g}", arm, BUSY, summary(more), at)


# ---- gains


def _gains(usual: Sequence[Finished]) -> Iterator[Part]:
    base, *others = arms_of(usual)
    if not others:
        return
    yield (
        f"How many times better than {base}: the quotient of the same mix and seed, as the mean over the "
        "mixes, ± half of the 95 % interval over seeds; in italics the paper's gain over Gavel."
    )
    rows = [
        [cluster, heading, *(_gain(cluster, here, metric, base, arm) for arm in others)]
        for metric, heading in GAINS.items()
        for cluster, here in _clusters(usual).items()
    ]
    yield Table(["cluster", "", *(f">{arm}" for arm in others)], rows)


def _gain(cluster: str, here: Sequence[Finished], metric: str, base: str, arm: str) -> str:
    found = _quotients(here, metric, base, arm)
    theirs = printed.GAINS[metric].get(cluster, {}).get(arm) if base == "gavel" else None
    ours = spread(found) if found else "–"
    return ours if theirs is None else f"{ours} *({theirs:g})*"


def _quotients(here: Sequence[Finished], metric: str, base: str, arm: str) -> Summary | None:
    """One value a seed: the mean over the mixes that both have."""
    by_seed: dict[int, list[float]] = {}
    for members in groups_of(here).values():
        values = {
            name: {one.result.seed: one.result.metrics[metric] for one in outcomes}
            for name, outcomes in arms_of(members).items()
        }
        for seed, own in values.get(arm, {}).items():
            other = values.get(base, {}).get(seed)
            if own and other:
                gain = own / other if metric in MORE_IS_BETTER else other / own
                by_seed.setdefault(seed, []).append(gain)
    means = [sum(found) / len(found) for found in by_seed.values()]
    return summary(means) if means else None


# ---- mixes


def _mixes(cluster: str, here: Sequence[Finished]) -> Table:
    rows = []
    for group, members in groups_of(here).items():
        mix = cluster_and_mix(group)[1]
        for arm, outcomes in arms_of(members).items():
            rows.append([mix, arm, *(_cell(outcomes, name) for name in MEASURES)])
            theirs = printed.M_5.get(cluster, {}).get(arm) if mix == "M-5" else None
            if theirs:
                known = {
                    "TTD, s": theirs.get("ttd_s"),
                    "first JCT, s": theirs.get("jct_min"),
                    "last JCT, s": theirs.get("jct_max"),
                }
                rows.append(["", "*the paper*", *(_said(known.get(name)) for name in MEASURES)])
    return Table(["mix", "policy", *(f">{name}" for name in MEASURES)], rows)


def _drawn(here: Sequence[Finished]) -> bytes:
    """A picture with a curve per arm over the number of jobs."""
    arms = [arm for arm in arms_of(here) if arm not in UNDRAWN]
    panels: dict[str, dict[str, dict[float, Summary]]] = {name: {arm: {} for arm in arms} for name in DRAWN}
    for members in groups_of(here).values():
        outcomes_of = arms_of(members)
        for arm in arms:
            outcomes = outcomes_of.get(arm, [])
            for name in DRAWN if outcomes else ():
                if (found := _summary(outcomes, name)) is not None:
                    panels[name][arm][float(len(outcomes[0].jobs))] = found
    there = {name: {arm: own for arm, own in found.items() if own} for name, found in panels.items()}
    return pictures.sweep({name: found for name, found in there.items() if found}, arms, "jobs")


# ---- lengths of a round


def _slots(cluster: str, here: Sequence[Finished]) -> Iterator[Part]:
    """Busy nodes by length of a round, of the arms that have more than one; the best in bold."""
    yield (
        "Nodes busy by rounds, %, by the length of a round; the highest mean is bold, the paper's best in "
        "italics. A longer round has fewer merges, starts and checkpoints; in a shorter one, nodes are idle "
        "for less time after jobs end."
    )
    slots = list(places_of(here))
    rows = []
    for group, members in groups_of(here).items():
        mix = cluster_and_mix(group)[1]
        for arm in arms_of(members):
            own = [one for one in members if one.case.arm == arm]
            by_slot = {at: _summary(arms_of(found)[arm], SLOTS) for at, found in places_of(own).items()}
            if len(by_slot) > 1:
                rows.append([mix, arm, *_marked(by_slot, slots), _best(cluster, arm, mix)])
    yield Table(["mix", "policy", *(f">{figure(slot)} s" for slot in slots), "the paper's best, s"], rows)
    yield Picture(f"{cluster}-slots", "Mean over the mixes, by length of a round.", _swept(here))


def _marked(by_slot: Mapping[float, Summary | None], slots: Sequence[float]) -> Iterator[str]:
    best = max(found.mean for found in by_slot.values() if found is not None)
    for slot in slots:
        found = by_slot.get(slot)
        text = spread(found)
        yield f"**{text}**" if found is not None and found.mean == best else text


def _best(cluster: str, arm: str, mix: str) -> str:
    found = printed.BEST_SLOTS.get(cluster, {}).get(arm.partition("+")[0], {}).get(mix, ())
    return f"*{', '.join(f'{slot:g}' for slot in found)}*" if found else ""


def _swept(here: Sequence[Finished]) -> bytes:
    """A picture of the arms with more than one length of a round: the mean over mixes, one value a seed."""
    found: dict[str, dict[float, Summary]] = {}
    for arm in arms_of(here):
        places = places_of([one for one in here if one.case.arm == arm])
        if len(places) > 1:
            found[arm] = {at: summary([*_by_seed(members).values()]) for at, members in places.items()}
    return pictures.sweep({SLOTS: found}, list(arms_of(here)), "length of a round, s")


def _by_seed(members: Sequence[Finished]) -> dict[int, float]:
    """Nodes busy by rounds, mean over the mixes, by seed."""
    values: dict[int, list[float]] = {}
    for one in members:
        if (value := MEASURES[SLOTS](one.outcome)) is not None:
            values.setdefault(one.case.seed, []).append(value)
    return {seed: sum(each) / len(each) for seed, each in values.items()}


# ---- one figure


def _clusters(finished: Sequence[Finished]) -> dict[str, list[Finished]]:
    found: dict[str, list[Finished]] = {}
    for one in finished:
        found.setdefault(cluster_and_mix(one.case.group)[0], []).append(one)
    return found


def _summary(outcomes: Sequence[Simulated], name: str) -> Summary | None:
    return mean_of(outcomes, MEASURES[name])


def _cell(outcomes: Sequence[Simulated], name: str) -> str:
    return spread(_summary(outcomes, name), marked=False)


def _said(value: float | None) -> str:
    return "" if value is None else f"*{value:,g}*"


def _jcts(outcome: Simulated) -> list[float]:
    return [job.jct_s for job in outcome.jobs if job.jct_s is not None]


def _percent(outcome: Simulated, metric: str) -> float | None:
    value = outcome.result.metrics.get(metric)
    return None if value is None else 100 * value


def _earliest_end_s(outcome: Simulated) -> float | None:
    """M*, seconds from the first submission, by the earliest plan that was made for all jobs."""
    whole = (plan for plan in outcome.plans if plan.placements + plan.left_out == len(outcome.jobs))
    first = next((plan.at + plan.horizon_s for plan in whole if plan.horizon_s), None)
    return None if first is None else first - outcome.began_at


MEASURES: Mapping[str, OfRun] = {
    "TTD, s": lambda outcome: outcome.result.metrics["ttd_s"],
    "mean JCT, s": lambda outcome: outcome.result.metrics["jct_s_mean"],
    "first JCT, s": lambda outcome: min(_jcts(outcome), default=None),
    "last JCT, s": lambda outcome: max(_jcts(outcome), default=None),
    "nodes busy, %": lambda outcome: _percent(outcome, "cru"),
    "by rounds, %": lambda outcome: _percent(outcome, "cru_slots"),
    "restarts": lambda outcome: outcome.result.metrics["restarts"],
    "merges": lambda outcome: outcome.result.metrics.get("merges"),
    "steps a merge": lambda outcome: outcome.result.metrics.get("merge_steps_mean"),
    "most steps": lambda outcome: outcome.result.metrics.get("merge_steps_max"),
    "largest share, %": lambda outcome: _percent(outcome, "copy_share_max"),
    "M*, s": _earliest_end_s,
}
