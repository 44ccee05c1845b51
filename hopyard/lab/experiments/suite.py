"""The experiments by name: what each is about, the runs it makes, and its report."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from hopyard.failures import Failure, Interrupted
from hopyard.lab.experiments import (
    accuracy,
    accuracy_report,
    comparison,
    errors,
    grids,
    hadar,
    hopyard_policy,
    jps,
    paper,
    scalability,
)
from hopyard.lab.experiments.hadare import cases as hadare_cases
from hopyard.lab.experiments.hadare import report as hadare_report
from hopyard.lab.experiments.hare import cases as hare_cases
from hopyard.lab.experiments.hare import report as hare_report
from hopyard.lab.experiments.options import Options
from hopyard.lab.report import parquet
from hopyard.lab.report.document import Figure, Part, Report, Written, write
from hopyard.lab.report.verdicts import Verdict, verdicts
from hopyard.lab.runs.cases import (
    Case,
    Finished,
    arms_of,
    as_key,
    bounding_of,
    comparable,
    groups_of,
    with_bounds,
)
from hopyard.lab.runs.pool import TrialPool, TrialRun
from hopyard.lab.runs.trials import Bounded, Simulated, Simulation, Solved, plain
from hopyard.local.signals import run_until_stopped
from hopyard.show.ticker import Ticker
from schemas.results import RunResult
from shared.domain.states import JobState

DIFFERENCES = "## Differences from the paper"
NOTES = Path(__file__).parents[3] / "docs" / "experiments"
"""what a person wrote about each experiment after looking at its event logs; in a checkout only"""
OF_SEVERAL_MAKERS = (
    "**These runs were made by several versions, or on several kinds of processors. Such runs may differ for "
    "no other reason:**"
)
REFUSED_LISTED = 20
"""refused jobs that a report names"""
REFUSING = Bounded(unknown="jobs were refused")
INCOMPLETE = Bounded(unknown="jobs did not complete")
BESIDE = re.compile(r"\[([^\]]+)\]\((?!https?:)[^)]+\)")
"""a link to a page that does not lie beside the report"""


class Findings(msgspec.Struct, frozen=True):
    """What a report says of finished runs, and the figures behind it."""

    parts: Sequence[Part]
    figures: Sequence[Figure]
    verdicts: Sequence[Verdict] | None = None
    """None: its policies are not set side by side"""


class Performed(msgspec.Struct, frozen=True, kw_only=True):
    written: Written
    paths: Sequence[Path]
    """files of the report; those that a reader opens first come first"""
    finished: Sequence[Finished]
    """the simulations"""
    compared: bool
    """a terminal shows their policies side by side"""
    printed: Sequence[Part] = ()
    """parts of the report that a terminal shows"""


class Experiment(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    about: str
    scenario: str = "hops-512"
    policies: tuple[str, ...] = grids.POLICIES
    cases: Callable[[Options], Iterator[Case]]
    report: Callable[[Options, Sequence[tuple[Case, TrialRun]]], Findings]
    seeds: int = 5
    held_out: Mapping[str, Sequence[int]] = {}
    """its seeds by scenario, in place of those asked for, but in a quick run"""
    serial: bool = False
    """runs are timed, so they must not share the machine"""
    prints: bool = False
    """a terminal shows the whole report"""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One experiment to run: its options, its folder, its processes."""

    name: str
    experiment: Experiment
    options: Options
    out: Path
    runs: Path
    """where outcomes are kept"""
    workers: int
    events: bool
    """keep the event log of every simulation beside its outcome"""
    about: dict[str, str]
    """machine and versions"""


def perform(plan: Plan, ticker: Ticker) -> Performed:
    """Make the runs that are missing and write the report.

    Raises Interrupted, and Failure when a run failed: then the report is of the others and says so.
    """
    cases = list(plan.experiment.cases(plan.options))
    pool = TrialPool(plan.runs, 1 if plan.experiment.serial else plan.workers, ticker, events=plan.events)
    runs = run_until_stopped(pool.run([case.trial for case in cases]))
    if runs is None:
        raise Interrupted("interrupted; what is done is kept, and the same command goes on from there")
    done = list(zip(cases, runs, strict=True))
    failures = tuple(dict.fromkeys(f"{run.trial}: {run.failure}" for run in runs if run.outcome is None))
    if all(run.outcome is None or isinstance(run.outcome, Bounded) for run in runs):
        raise Failure("every run failed; the first: " + failures[0])
    performed = _write(plan, done, failures)
    if failures:
        raise Failure(
            f"runs that failed: {len(failures)}; {performed.paths[0]} is about the others and says which"
        )
    return performed


def overruled(plan: Plan) -> Iterator[str]:
    """Settings of the shell that some runs have otherwise, because of what they compare."""
    for name, value in plan.options.given.items():
        found = {
            f"{case.arm} ({case.group})": other
            for case in plan.experiment.cases(plan.options)
            if (other := case.trial.overrides.get(name, value)) != value
        }
        for arm, other in found.items():
            yield f"{name} is {plain(other)} and not {plain(value)} for {arm}"


def _write(plan: Plan, done: Sequence[tuple[Case, TrialRun]], failures: tuple[str, ...]) -> Performed:
    findings = plan.experiment.report(plan.options, done)
    finished = simulations(done)
    about = plan.options.about() | own_seeds(plan) | plan.about
    report = Report(
        title=_title(plan),
        parts=[*_opening(plan, failures, finished), *findings.parts, *_closing(plan, about)],
        figures=findings.figures,
    )
    written = Written(
        experiment=plan.name,
        about=about,
        figures=tuple(findings.figures),
        verdicts=tuple(findings.verdicts or ()),
        failures=failures,
    )
    if finished:
        parquet.write(plan.out / "data", finished)
    return Performed(
        written=written,
        paths=write(plan.out, report, written),
        finished=finished,
        compared=findings.verdicts is not None,
        printed=findings.parts if plan.experiment.prints else (),
    )


def _title(plan: Plan) -> str:
    policies = [policy.label for policy in plan.options.policies]
    return f"{plan.experiment.title}: {', '.join(policies)} on {plan.options.scenario.name}"


def _opening(plan: Plan, failures: Sequence[str], finished: Sequence[Finished]) -> Iterator[Part]:
    yield _facts(plan)
    yield plan.experiment.about
    if plan.options.quick:
        yield "**A quick run, to see that everything works: its figures mean nothing.**"
    if failures:
        heading = "**Runs that failed, and are missing from all figures; comparisons leave out their seeds:**"
        yield "\n".join([heading, "", *_listed(failures)])
    refused = list(_refused(finished))
    if refused:
        heading = "**Jobs that were refused when they came, and are missing from all figures:**"
        yield "\n".join([heading, "", *_listed(refused[:REFUSED_LISTED])])
        if len(refused) > REFUSED_LISTED:
            yield f"{len(refused) - REFUSED_LISTED} more were refused."
    broken = [f"{one.case.trial}: {said}" for one in finished for said in one.outcome.violations]
    if broken:
        yield "\n".join(["**Event logs that break a rule:**", "", *_listed(broken)])
    found = makers([one.outcome.result for one in finished])
    if len(found) > 1:
        yield "\n".join([OF_SEVERAL_MAKERS, "", *_listed(found)])


def _refused(finished: Iterable[Finished]) -> dict[str, None]:
    """Each refused job of a scenario and seed once, though every policy did without it."""
    return dict.fromkeys(
        f"{one.outcome.result.scenario} seed {one.case.seed}: {job.name} at {job.at_s:g} s: {job.reason}"
        for one in finished
        for job in one.outcome.result.refused
    )


def makers(results: Iterable[RunResult]) -> list[str]:
    """Versions and machines that made the runs, on which event logs depend too; each different set once."""
    texts = (", ".join(f"{part} {which}" for part, which in one.made_by.items()) for one in results)
    return sorted({text or "not noted" for text in texts})


def own_seeds(plan: Plan) -> dict[str, str]:
    """The seeds that were run, in place of those of the options; empty where these were."""
    if plan.options.quick or not plan.experiment.held_out:
        return {}
    seeds = {name: ", ".join(map(str, each)) for name, each in plan.experiment.held_out.items()}
    return {"seeds": "; ".join(f"{name} {each}" for name, each in seeds.items())}


def _facts(plan: Plan) -> str:
    """What was run, and when."""
    scenario, seeds = plan.options.scenario, plan.options.seeds
    about = f" ({scenario.about.strip()})" if scenario.about else ""
    count = f"{len(seeds)} seeds" if len(seeds) > 1 else "1 seed"
    made = f", made {plan.about['made']}" if "made" in plan.about else ""
    if own := own_seeds(plan):
        return f"Scenarios and their seeds: {own['seeds']}{made}."
    return f"Scenario **{scenario.name}**{about}, {count}{made}."


def _listed(lines: Sequence[str]) -> list[str]:
    """A list item each, its first and its last line."""
    ends = ((line.splitlines()[0], line.splitlines()[-1]) for line in lines)
    return [f"- `{first}`" if first == last else f"- `{first}` … `{last}`" for first, last in ends]


def _closing(plan: Plan, about: Mapping[str, str]) -> Iterator[Part]:
    notes = NOTES / f"{plan.name}.md"
    if notes.is_file():
        yield from differences(notes.read_text("utf-8"))
    yield "## How this was made"
    yield "\n".join(f"- {label}: {text}" for label, text in about.items())


def differences(notes: str) -> Iterator[Part]:
    """The part of an experiment's page that says where it differs from the paper and why."""
    _, heading, rest = notes.partition(f"{DIFFERENCES}\n")
    if heading:
        yield DIFFERENCES
        yield BESIDE.sub(r"\1", rest.partition("\n## ")[0].strip())


def simulations(done: Sequence[tuple[Case, TrialRun]]) -> list[Finished]:
    """A bound is of all jobs that fit, so it bounds no run that refused some or did not complete them all."""
    bounds = {as_key(case.trial): run.outcome for case, run in done if isinstance(run.outcome, Bounded)}

    def bound_of(trial: Simulation, outcome: Simulated) -> Bounded | None:
        if outcome.result.refused:
            return REFUSING
        bound = bounds.get(as_key(bounding_of(trial)))
        open_or_failed = sum(job.state != JobState.COMPLETED for job in outcome.jobs)
        return bound if bound is None or bound.unknown or open_or_failed <= bound.left_out else INCOMPLETE

    return [
        Finished(case, run.outcome, bound_of(case.trial, run.outcome))
        for case, run in done
        if isinstance(run.outcome, Simulated) and isinstance(case.trial, Simulation)
    ]


def _solves(done: Sequence[tuple[Case, TrialRun]]) -> list[tuple[Case, Solved]]:
    return [(case, run.outcome) for case, run in done if isinstance(run.outcome, Solved)]


def _reported(
    options: Options, tables: Mapping[str, tuple[str, paper.Reported]]
) -> tuple[str, paper.Reported]:
    """The paper's figures for the scenario as it stands, and their place; none for other arrivals."""
    return ("", {}) if options.traced else tables.get(options.scenario.name, ("", {}))


def _asked(_: Options, done: Sequence[tuple[Case, TrialRun]]) -> Findings:
    """One's own comparison: the paper has nothing about it."""
    finished = comparable(simulations(done))
    return Findings(
        list(comparison.compared(finished, {}, "")), comparison.figures_of(finished, {}), _verdicts(finished)
    )


def _own(_: Options, done: Sequence[tuple[Case, TrialRun]]) -> Findings:
    finished = comparable(simulations(done))
    return Findings(
        list(comparison.compared(finished, {}, "")),
        [*comparison.figures_of(finished, {}), *hopyard_policy.restarts_apart(finished)],
        _verdicts(finished),
    )


def _compare(options: Options, done: Sequence[tuple[Case, TrialRun]]) -> Findings:
    source, reported = _reported(options, paper.TABLES)
    finished = comparable(simulations(done))
    return Findings(
        list(comparison.compared(finished, reported, source)),
        comparison.figures_of(finished, reported),
        _verdicts(finished),
    )


def _priorities(options: Options, done: Sequence[tuple[Case, TrialRun]]) -> Findings:
    source, reported = _reported(options, paper.PRIORITIES)
    finished = comparable(simulations(done))
    return Findings(
        list(comparison.by_rule(finished, reported, source)),
        comparison.figures_of(finished, reported),
        _verdicts(finished),
    )


def _verdicts(finished: Sequence[Finished]) -> list[Verdict]:
    return [
        verdict
        for group, members in groups_of(finished).items()
        for verdict in verdicts(group, arms_of(members))
    ]


def _departures(_: Options, done: Sequence[tuple[Case, TrialRun]]) -> Findings:
    finished = comparable(simulations(done))
    return Findings(
        [*comparison.by_rule(finished, {}, ""), *errors.predicted(finished)],
        [*comparison.figures_of(finished, {}), *errors.figures_of(finished)],
        _verdicts(finished),
    )


def _rates(_: Options, done: Sequence[tuple[Case, TrialRun]]) -> Findings:
    finished = comparable(simulations(done))
    return Findings(
        list(comparison.swept(finished, "jobs per hour")),
        [*comparison.figures_of(finished, {}), *comparison.leads_of(finished)],
    )


def _hadar(options: Options, done: Sequence[tuple[Case, TrialRun]]) -> Findings:
    finished = comparable(simulations(done))
    return Findings(
        list(hadar.report(options, finished)), hadar.figures_of(options, finished), _verdicts(finished)
    )


def _jps(_: Options, done: Sequence[tuple[Case, TrialRun]]) -> Findings:
    finished = simulations(done)
    return Findings(list(jps.report.report(finished)), jps.report.figures_of(finished))


def _accuracy(_: Options, done: Sequence[tuple[Case, TrialRun]]) -> Findings:
    finished = simulations(done)
    return Findings(list(accuracy_report.report(finished)), accuracy_report.figures_of(finished))


def _scalability(_: Options, done: Sequence[tuple[Case, TrialRun]]) -> Findings:
    found = _solves(done)
    return Findings(list(scalability.report(found)), scalability.figures_of(found))


def _hadare(_: Options, done: Sequence[tuple[Case, TrialRun]]) -> Findings:
    finished = simulations(done)
    return Findings(list(hadare_report.report(finished)), hadare_report.figures_of(finished))


def _hare(_: Options, done: Sequence[tuple[Case, TrialRun]]) -> Findings:
    finished = simulations(done)
    return Findings(list(hare_report.report(finished)), hare_report.figures_of(finished))


BASELINES = (
    "Two settings, both shown: policies *as in the paper* plan the service window of the latency-ratio queue "
    "and see the same demand sets (Gavel the median of each); *as its authors set it*, each runs with its "
    "own paper's choices. What the paper leaves open is also *read otherwise*. All see the same jobs, "
    "estimates and costs: profiling, restarts, decision time."
)

COMPARE = Experiment(
    title="Policies compared",
    about="Every policy as it was named, with its own defaults; all see the same jobs, estimates and costs: "
    "profiling, restarts, decision time.",
    cases=lambda options: with_bounds(grids.asked(options)),
    report=_asked,
)

EXPERIMENTS: Mapping[str, Experiment] = {
    "accuracy": Experiment(
        title="Accuracy of the throughput estimator",
        about="Figures 6 and 7 of the paper: predictions against what jobs then did on the emulated world, "
        "whose truth is richer than the estimator's formulas and which no service can read.",
        scenario="hops-64",
        policies=("hops",),
        cases=accuracy.cases,
        report=_accuracy,
    ),
    "table3": Experiment(
        title="Table 3: 25 jobs on 64 GPUs",
        about="Table 3 and figure 9 of the paper, whose figures are from a physical cluster. " + BASELINES,
        scenario="hops-64",
        cases=lambda options: with_bounds(grids.table(options)),
        report=_compare,
    ),
    "table4": Experiment(
        title="Table 4: 500 jobs on 512 GPUs",
        about="Table 4, figures 11 and 12 and section 4.4 of the paper. " + BASELINES,
        cases=lambda options: with_bounds(grids.table(options)),
        report=_compare,
    ),
    "departures": Experiment(
        title="Hops to the letter",
        about="Every rule and equation in which Hops is not as its paper prints it "
        "(docs/policies/hops.md), each by itself as printed, and all of them: what a departure is worth.",
        scenario="hops-64",
        policies=("hops",),
        cases=grids.departures,
        report=_departures,
        seeds=3,
    ),
    "priorities": Experiment(
        title="Priorities",
        about="Figure 13 and section 4.5 of the paper: one policy, and only the rule of its queue changes. "
        "The paper says that under LAS, SJF and SRTF many jobs wait more than 80 times their expected "
        "running time, and that the latency ratio stays at 3 under LR.",
        policies=("hops",),
        cases=grids.priorities,
        report=_priorities,
    ),
    "arrival-rates": Experiment(
        title="Arrival rates",
        about="Figure 13 and section 4.6 of the paper: the same jobs, arriving at 30 to 1200 an hour. The "
        "paper prints no numbers; it says that the lead of Hops in mean JCT grows with the rate.",
        cases=grids.arrival_rates,
        report=_rates,
        prints=True,
    ),
    "scalability": Experiment(
        title="Scalability of the integer program",
        about=" ".join((scalability.__doc__ or "").split()),
        policies=("hops",),
        scenario="hops-512-three",
        cases=scalability.cases,
        report=_scalability,
        seeds=3,
        serial=True,
    ),
    "hadar": Experiment(
        title="Hadar: 480 jobs on 60 GPUs",
        about="Section IV and figures 3 and 4 of the Hadar paper (arXiv 2503.10918), a simulation like this "
        "one. Jobs are drawn from the Philly trace's hours 3 to 10 and are all there from the start; rounds "
        "last 6 min, a new allocation takes 10 s. Gavel runs by max-min fairness, as in its own study, and "
        "by makespan, which is what is compared here; Tiresias has two queues.",
        scenario=hadar.SCENARIO,
        policies=hadar.POLICIES,
        cases=hadar.cases,
        report=_hadar,
    ),
    "jps": Experiment(
        title="JPS: four jobs on 15 to 300 GPUs",
        about="Section VI of the JPS paper (IEEE TPDS 35(6), 2024), by the paper's law: measured speeds, and "
        "one exchange of gradients an epoch. Real training, and the emulated world, exchange in every "
        "iteration. Most speeds are reconstructed from what the paper prints (`loadgen/catalogue/jps.yaml`).",
        scenario=jps.cases.SCENARIO,
        policies=jps.cases.POLICIES,
        cases=jps.cases.cases,
        report=_jps,
        seeds=30,
        prints=True,
    ),
    "hadare": Experiment(
        title="HadarE on five unlike nodes",
        about="Figures 8 to 12 of HadarE (arXiv 2503.10918, section VI): two clusters of five nodes with "
        "one GPU each, seven mixes of one to twelve jobs that come at once. Its figures are from "
        "physical clusters; lengths of jobs are not printed and were fixed once, by one of its figures.",
        scenario=hadare_cases.AWS,
        policies=hadare_cases.POLICIES,
        cases=hadare_cases.cases,
        report=_hadare,
    ),
    "hare": Experiment(
        title="Hare and HLAS on 15 and 160 GPUs",
        about="Section VI of the Hare paper (IEEE TCC 12(4), 2024): jobs that all arrive at time 0, on "
        "its testbed and on 160 GPUs (figures 14 to 21), and jobs that arrive over time (22 to 27). How many "
        "jobs, their sizes and arrivals are not printed and are ours. `--full` adds the sweeps over GPUs and "
        "jobs (figures 16, 17, 22, 23).",
        scenario=hare_cases.SCENARIO,
        policies=hare_cases.POLICIES,
        cases=hare_cases.cases,
        report=_hare,
        seeds=3,
    ),
    "hopyard": Experiment(
        title="hopyard beside Hops, held out",
        about="Our own policy and Hops, on scenarios and seeds that were not looked at while the defaults of "
        "the policy were chosen; two of the scenarios are days of real traces. `hops as published` plans "
        "when a round begins, measures new workloads then, and moves jobs at no cost and without limits, as "
        "its paper has it. The first scenario is run without each term of the policy, too.",
        scenario="hops-64",
        policies=("hopyard", "hops"),
        cases=lambda options: with_bounds(hopyard_policy.cases(options)),
        held_out=hopyard_policy.HELD_OUT,
        report=_own,
    ),
}
