"""experiment, compare: grids of simulations over several seeds, and reports of them."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.text import Text

from hopyard.commands.about import versions
from hopyard.commands.options import AsJson, Columns, Scenario, Trace, folder_path, located
from hopyard.failures import Invalid
from hopyard.show.terminal import put, say, show_json
from hopyard.show.ticker import Ticker
from schemas.settings import SEED_MOST
from shared.runtime.disk import make_folder

if TYPE_CHECKING:
    from hopyard.lab.experiments.baselines import Contender
    from hopyard.lab.experiments.options import Options
    from hopyard.lab.experiments.suite import Experiment, Performed

FOLDER = Path("experiments")
RUNS = FOLDER / "runs"
"""outcomes of all experiments, each under a name of its own, so that experiments share them"""
QUICK_SEEDS = 2
SEEDS_DEFAULT = "5; jps 30; departures, hare, scalability 3"
ALL = "all"
"""among policies: every installed one"""


class Name(StrEnum):
    """The experiments."""

    ACCURACY = "accuracy"
    TABLE3 = "table3"
    TABLE4 = "table4"
    PRIORITIES = "priorities"
    DEPARTURES = "departures"
    ARRIVAL_RATES = "arrival-rates"
    SCALABILITY = "scalability"
    HADAR = "hadar"
    JPS = "jps"
    HADARE = "hadare"
    HARE = "hare"
    HOPYARD = "hopyard"


FIXED: Mapping[Name, Mapping[str, str]] = {
    Name.DEPARTURES: {"--policies": "its arms are those of Hops"},
    Name.HOPYARD: {
        "--policies": "its arms are fixed",
        "--trace": "its scenarios are fixed",
        "--seeds": "its seeds are those on which the policy was not tuned",
    },
}
"""options that an experiment does not have, and why; a quick run has `--trace` and `--seeds`"""
RULE = "priority_rule"
"""the option that `priorities` varies"""
ONE_POLICY = (Name.ACCURACY, Name.PRIORITIES, Name.SCALABILITY)
"""experiments that run one policy under several conditions"""


OUT_HELP = "Folder of the report, and of the runs it is made from: the same command goes on from there."
OUT_DEFAULT = "one below experiments/"
POLICIES_HELP = (
    "Policies, the one to compare with first; `all`: every installed one; NAME+SETTING=VALUE changes "
    "settings."
)
SEEDS_HELP = "Run everything with so many seeds, from the workload's own on."

Jobs = Annotated[
    int | None,
    typer.Option("--jobs", min=1, max=1024, help="Runs at once.", show_default="all cores"),
]
ReportFolder = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", parser=folder_path, help=OUT_HELP, show_default=OUT_DEFAULT),
]
Events = Annotated[bool, typer.Option("--events", help="Keep the event log of each run beside its outcome.")]


def experiment(
    name: Annotated[Name, typer.Argument(metavar="NAME", help=f"One of {', '.join(Name)}.")],
    *,
    seeds: Annotated[
        int | None,
        typer.Option("--seeds", min=1, max=1000, help=SEEDS_HELP, show_default=SEEDS_DEFAULT),
    ] = None,
    policies: Annotated[
        str | None,
        typer.Option("--policies", metavar="A,B,…", help=POLICIES_HELP, show_default="the experiment's"),
    ] = None,
    trace: Trace = None,
    columns: Columns = None,
    out: ReportFolder = None,
    jobs: Jobs = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Use the scenario tiny and two seeds, to see that it works.")
    ] = False,
    full: Annotated[
        bool,
        typer.Option("--full", help="Include the costliest sweeps; only hare has any."),
    ] = False,
    events: Events = False,
    as_json: AsJson = False,
) -> None:
    """Repeat an experiment of a paper over several seeds, and set the figures beside the paper's.

    accuracy: predicted against measured throughput (figures 6 and 7).
    table3: 25 jobs on 64 GPUs. table4: 500 jobs on 512 GPUs.
    priorities: one policy with other rules of its queue (figure 13).
    departures: Hops with each rule and equation as printed, on 64 GPUs.
    arrival-rates: 30 to 1200 jobs an hour (figure 13).
    scalability: how long the integer programs take (figures 14 and 15).
    hadar: section IV of the Hadar paper, 480 jobs on 60 GPUs.
    jps: section VI of the JPS paper, four jobs on 15 to 300 GPUs.
    hadare: section VI of the Hadar paper, one to twelve jobs on five unlike nodes.
    hare: section VI of the Hare paper, jobs at once and online on 15 and 160 GPUs.
    hopyard: of no paper, our own policy beside Hops where it was not tuned, with seeds of its own.

    The others are of the Hops paper.

    $ hopyard experiment table3
    $ hopyard experiment table4 --policies hops,sia,gavel --seeds 5 --out table4
    """
    if full and name is not Name.HARE:
        raise Invalid(f"--full: {name} has no costlier sweeps; only {Name.HARE} has any")
    _refuse_fixed(name, {"--policies": policies, "--trace": trace, "--seeds": seeds}, quick=quick)
    if full and (quick or trace is not None):
        raise Invalid(f"--full: the costlier sweeps have neither {'--quick' if quick else '--trace'}")
    if policies is not None:  # what is wrong with them is said before what is not installed
        _check_policies(name, _contenders(policies))
    from hopyard.lab.experiments.suite import EXPERIMENTS  # noqa: PLC0415 - brings matplotlib and the services

    chosen = EXPERIMENTS[name]
    options = _options(
        scenario="tiny" if quick else chosen.scenario,
        policies=",".join(chosen.policies) if policies is None else policies,
        seeds=seeds or (QUICK_SEEDS if quick else chosen.seeds),
        trace=trace,
        columns=columns,
        quick=quick,
        full=full,
    )
    _perform(name, chosen, options, out=out, jobs=jobs, events=events, as_json=as_json)


def compare(
    *,
    scenario: Scenario = "hops-64",
    policies: Annotated[
        str, typer.Option("--policies", metavar="A,B,…", help=POLICIES_HELP)
    ] = "hops,sia,gavel",
    seeds: Annotated[int, typer.Option("--seeds", min=1, max=1000, help=SEEDS_HELP)] = 5,
    trace: Trace = None,
    columns: Columns = None,
    out: ReportFolder = None,
    jobs: Jobs = None,
    events: Events = False,
    as_json: AsJson = False,
) -> None:
    """Compare policies on the same jobs, costs and seeds: a table, a verdict in words, plots, data.

    Only the named policies run. Name your own by its entry point or as
    FILE.py:CLASS. After `+` come options of a policy, and settings for its runs
    alone.

    $ hopyard compare --scenario hops-512 --policies hops,sia,gavel --seeds 5
    $ hopyard compare --policies hops,./mine.py:Greedy --trace jobs.csv
    $ hopyard compare --scenario hops-64 --policies hops,hops+moving_cost_s=30
    $ hopyard compare --scenario tiny --policies hops,all --seeds 2
    """
    options = _options(scenario=scenario, policies=policies, seeds=seeds, trace=trace, columns=columns)
    from hopyard.lab.experiments.suite import COMPARE  # noqa: PLC0415 - brings matplotlib and the services

    _perform("compare", COMPARE, options, out=out, jobs=jobs, events=events, as_json=as_json)


def _refuse_fixed(name: Name, given: Mapping[str, object], *, quick: bool) -> None:
    """Raises Invalid for an option that would have no effect."""
    for option, why in FIXED.get(name, {}).items():
        if given[option] is not None and not (quick and option != "--policies"):
            raise Invalid(f"{option}: {name} does not have it, as {why}; try `hopyard compare`")


def _check_policies(name: Name, named: "Sequence[Contender]") -> None:
    """Raises Invalid for policies that the experiment could not run."""
    from services.planner.policies.registry import options_kind  # noqa: PLC0415 - brings numpy
    from shared.domain.policy_names import parted  # noqa: PLC0415 - as above

    if name in ONE_POLICY and len(named) > 1:
        raise Invalid(f"--policies: {name} runs one policy, and {len(named)} are named")
    policy = parted(named[0].policy).name
    if name is Name.SCALABILITY and policy != "hops":
        raise Invalid(f"--policies: {name} solves the programs of hops, with options of hops at most")
    if name is Name.PRIORITIES and RULE not in options_kind(policy).__struct_fields__:
        raise Invalid(f"--policies: {name} compares values of the option {RULE}, which {policy} lacks")


def _options(
    *,
    scenario: str,
    policies: str,
    seeds: int,
    trace: Path | None,
    columns: str | None,
    quick: bool = False,
    full: bool = False,
) -> "Options":
    """Raises Invalid."""
    from hopyard.actions.scenario import (  # noqa: PLC0415 - as above
        check_settings,
        chosen_scenario,
        simulated_scenario,
    )
    from hopyard.lab.experiments.baselines import DECIDED  # noqa: PLC0415 - brings numpy
    from hopyard.lab.experiments.options import Options  # noqa: PLC0415 - as above
    from loadgen.scenarios import own_seed  # noqa: PLC0415 - as above

    named = _contenders(policies)
    found = simulated_scenario(chosen_scenario(scenario, trace, columns, say), say, DECIDED)
    for each in named:
        try:
            check_settings(found.scenario, each.overrides)
        except Invalid as error:
            raise Invalid(f"--policies {each.label}: {error}") from None
    first = own_seed(found.scenario)
    if first + seeds - 1 > SEED_MOST:
        raise Invalid(f"--seeds {seeds}: the last would be above {SEED_MOST}, as the workload's is {first}")
    return Options(
        scenario=found.scenario,
        policies=named,
        seeds=tuple(range(first, first + seeds)),
        given=found.given,
        quick=quick,
        full=full,
    )


def _contenders(policies: str) -> "tuple[Contender, ...]":
    """Raises Invalid."""
    from hopyard.actions.scenario import check_policy  # noqa: PLC0415 - brings numpy

    texts = _named(policies)
    if not texts:
        raise Invalid("--policies names no policy")
    if len(set(texts)) < len(texts):
        raise Invalid(f"--policies names a policy twice: {policies}")
    named = tuple(_contender(text) for text in texts)
    for each in named:
        check_policy(each.policy)
    return named


def _named(policies: str) -> list[str]:
    """The policies; `all` stands for the installed ones that are not named otherwise."""
    from services.planner.policies.registry import names  # noqa: PLC0415 - brings numpy

    texts = [text.strip() for text in policies.split(",") if text.strip()]
    others = [name for name in names() if name not in texts]
    return [name for text in texts for name in (others if text == ALL else [text])]


def _contender(text: str) -> "Contender":
    """The policy, named in tables as it was typed. Raises Invalid."""
    from hopyard.actions.scenario import valid  # noqa: PLC0415 - brings numpy
    from hopyard.lab.experiments.baselines import contender  # noqa: PLC0415 - as above

    return msgspec.structs.replace(valid(lambda: contender(located(text))), label=text)


def _perform(
    name: str,
    chosen: "Experiment",
    options: "Options",
    *,
    out: Path | None,
    jobs: int | None,
    events: bool,
    as_json: bool,
) -> None:
    from hopyard.lab.bench.machine import machine_facts  # noqa: PLC0415 - brings numpy
    from hopyard.lab.experiments.suite import Plan, overruled, perform  # noqa: PLC0415 - brings matplotlib
    from hopyard.lab.report.document import refuse_other  # noqa: PLC0415 - as above

    folder = out or FOLDER / name / options.folder()
    refuse_other(folder, options.about())
    make_folder(folder)
    machine = machine_facts(folder)
    plan = Plan(
        name=name,
        experiment=chosen,
        options=options,
        out=folder,
        runs=RUNS if out is None else out / "runs",
        workers=jobs or int(machine["cores"]),
        events=events,
        about={"made": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"} | machine | versions(),
    )
    for line in overruled(plan):
        say(line)
    _show(perform(plan, Ticker()), as_json=as_json)


def _show(performed: "Performed", *, as_json: bool) -> None:
    """What the report says, in short, and where it is."""
    from hopyard.lab.experiments.remarks import remarks_of  # noqa: PLC0415 - brings numpy
    from hopyard.lab.report.screen import compared, on_screen  # noqa: PLC0415 - as above
    from hopyard.lab.runs.cases import groups_of  # noqa: PLC0415 - as above

    if as_json:
        show_json(performed.written)
        return
    groups = groups_of(performed.finished) if performed.compared else {}
    for index, (group, members) in enumerate(groups.items()):
        if index:
            put("")
        found = [one for one in performed.written.verdicts if one.group == group]
        for part in compared(group, members, found, remarks_of(members)):
            put(part)
    for shown in on_screen(performed.printed):
        put(shown)
    put("")
    for path in performed.paths:
        put(Text(str(path), no_wrap=True, overflow="ignore"))


def register(app: typer.Typer) -> None:
    app.command("experiment")(experiment)
    app.command("compare")(compare)
