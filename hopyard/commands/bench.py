"""bench."""

import os
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hopyard.commands.about import versions
from hopyard.commands.options import AsJson, Out, apart, folder_path, scenario_named, typed
from hopyard.commands.solve import Backend
from hopyard.failures import Invalid
from hopyard.local.data_folder import empty_folder
from hopyard.show.terminal import say, show
from shared.runtime.disk import make_folder

if TYPE_CHECKING:
    from hopyard.lab.bench.growth import Growth
    from hopyard.lab.bench.suite import BenchRun


class Subject(StrEnum):
    """What there is to measure."""

    LATENCY = "latency"
    SUBMISSIONS = "submissions"
    DISPATCH = "dispatch"
    ACCESS = "access"
    RESTART = "restart"
    SIMULATION = "simulation"
    SOLVER = "solver"
    POLICIES = "policies"
    PAGE = "page"
    SWITCHING = "switching"


APART = {Subject.ACCESS, Subject.SOLVER, Subject.POLICIES, Subject.PAGE, Subject.SWITCHING}
"""take long, or need a browser or torch"""
SHORT = tuple(subject for subject in Subject if subject not in APART)
"""measured unless others are named: a few minutes in all"""

TAKEN_BY = {
    "gpus": (Subject.SOLVER, Subject.POLICIES),
    "instances": (Subject.SOLVER, Subject.POLICIES),
    **dict.fromkeys(("deadline_s", "gap", "problems", "backends", "classes", "quick"), (Subject.SOLVER,)),
    **dict.fromkeys(("scenario", "counts"), (Subject.SIMULATION,)),
    "times": (Subject.SIMULATION, Subject.ACCESS),
    "python": (Subject.SWITCHING,),
}
"""the benchmarks that take a parameter; the others are of all"""

GPUS_MOST = 100_000
"""as many as a job may list"""
JOBS_MOST = 1_000_000
"""as many as a scenario may draw"""

Figures = Annotated[
    list[Subject] | None,
    typer.Argument(
        metavar="FIGURE", help=f"What to measure: {', '.join(Subject)}. Default: {', '.join(SHORT)}."
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        parser=folder_path,
        callback=apart,
        help="Write in this folder, on the disk to be measured. Default: a temporary folder.",
    ),
]
Scale = Annotated[
    float,
    typer.Option(
        "--scale", min=0.001, max=100, help="Multiply the number of jobs and facts. Not for the simulation."
    ),
]

BOTH = "Solver and policies"
Sizes = Annotated[
    str | None,
    typer.Option(
        "--gpus",
        metavar="N,N,...",
        help="Cluster sizes. Default: 64 to 8192; for policies 64,512,2048.",
        rich_help_panel=BOTH,
    ),
]
Instances = Annotated[
    int,
    typer.Option(
        "--instances",
        min=1,
        help="Solver: problems of each size and kind. Policies: clusters of each size.",
        rich_help_panel=BOTH,
    ),
]

SOLVER = "Solver"
Deadline = Annotated[
    float,
    typer.Option(
        "--deadline",
        metavar="SECONDS",
        min=0,
        max=86_400,
        help="CPU seconds of each solve.",
        rich_help_panel=SOLVER,
    ),
]
Gap = Annotated[
    float,
    typer.Option("--gap", min=0, max=1, help="Stop at this proven relative gap.", rich_help_panel=SOLVER),
]
Problems = Annotated[
    Path | None,
    typer.Option(
        "--problems",
        metavar="DIR",
        parser=folder_path,
        help="Solve the largest saved problems of this folder.",
        rich_help_panel=SOLVER,
    ),
]
EVERY_BACKEND = ",".join(Backend)
Backends = Annotated[
    str, typer.Option("--backends", metavar="NAME,...", help="Back ends to compare.", rich_help_panel=SOLVER)
]
EVERY_CLASS = "all"
ClassNames = Annotated[
    str | None,
    typer.Option(
        "--classes",
        metavar="NAME,...",
        help="Solve these classes of problems instead, ours against the fastest other; or: all.",
        rich_help_panel=SOLVER,
    ),
]
Quick = Annotated[
    bool,
    typer.Option(
        "--quick",
        help="One problem of each class, and less time for the other back ends.",
        rich_help_panel=SOLVER,
    ),
]

SIMULATION = "Simulation"
GrownScenario = Annotated[
    str | None,
    typer.Option(
        "--scenario",
        metavar="NAME|FILE",
        callback=scenario_named,
        help="Show how the cost grows with the number of jobs of this scenario. Needs --jobs.",
        rich_help_panel=SIMULATION,
    ),
]
Counts = Annotated[
    str | None,
    typer.Option("--jobs", metavar="N,N,...", help="Numbers of jobs.", rich_help_panel=SIMULATION),
]

Repetitions = Annotated[
    int,
    typer.Option(
        "--times",
        min=1,
        help="Runs of each; the cheapest counts. Of access: eight slices each.",
        rich_help_panel=SIMULATION,
    ),
]

TorchPython = Annotated[
    Path | None,
    typer.Option(
        "--python",
        metavar="PYTHON",
        help="A Python interpreter that has torch. Default: one that is found.",
        rich_help_panel="Switching",
    ),
]


def bench(
    context: typer.Context,
    *,
    subjects: Figures = None,
    as_json: AsJson = False,
    out: Out = None,
    data: Data = None,
    scale: Scale = 1.0,
    gpus: Sizes = None,
    instances: Instances = 1,
    deadline_s: Deadline = 20.0,
    gap: Gap = 0.01,
    problems: Problems = None,
    backends: Backends = EVERY_BACKEND,
    classes: ClassNames = None,
    quick: Quick = False,
    scenario: GrownScenario = None,
    counts: Counts = None,
    times: Repetitions = 3,
    python: TorchPython = None,
) -> None:
    """Measure what the system does on this machine: real processes, a real disk, a few minutes.

    latency: time from a job's submission to running, on an idle cluster.
    submissions: jobs a second through the HTTP API, each stored on disk.
    dispatch: facts a second from one process to the next.
    access: what accounts and TLS cost in both of these, beside tokens alone.
    restart: time from kill -9 to ready of each service, with 10,000 jobs in the log.
    simulation: CPU of hops-64 and hops-512, with and without the solver.
    solver: back ends side by side on problems of many sizes, up to an hour.
    policies: how long each takes for a plan, and whether it meets the deadline; minutes.
    page: how soon a browser shows 256 nodes and 2,000 jobs; needs Chromium and
    its driver.
    switching: time between the last task of one job and the first of another on
    a GPU, in a new process, as a fork, and in turns; needs torch.

    $ hopyard bench
    $ hopyard bench latency submissions --out figures.json
    $ hopyard bench access --times 5
    $ hopyard bench solver --gpus 64,512 --instances 3 --deadline 60
    $ hopyard bench solver --classes all --instances 10
    $ hopyard bench policies --gpus 512 --instances 3
    $ hopyard bench page
    $ hopyard bench switching --python ~/torch/bin/python
    $ hopyard bench simulation --times 5
    $ hopyard bench simulation --scenario philly.yaml --jobs 1000,10000
    """
    chosen = tuple(dict.fromkeys(subjects or SHORT))
    _refuse_useless(context, chosen)
    from hopyard.lab.bench.planning.solver import Trials  # noqa: PLC0415 - brings numpy
    from hopyard.lab.bench.suite import BenchRun, check  # noqa: PLC0415 - brings every service

    trials = Trials(
        sizes=() if gpus is None else _numbers("--gpus", gpus, GPUS_MOST),
        instances=instances,
        deadline_s=deadline_s,
        gap=gap,
        problems=problems,
        backends=_known(backends),
        classes=() if classes is None else _known_classes(classes),
        quick=quick,
    )
    grown = _grown(scenario, counts)
    if Subject.SIMULATION in chosen:
        _say_what_it_ignores()
    with empty_folder(data) as folder:
        run = BenchRun(folder, scale, say, trials, grown, python, times)
        check(chosen, run)
        _measure(chosen, run, as_json=as_json, out=out)


def _measure(chosen: Sequence[Subject], run: "BenchRun", *, as_json: bool, out: Path | None) -> None:
    """Show what was measured, also where a later benchmark fails or is interrupted."""
    from hopyard.lab.bench.figures import Benchmark, BenchReport  # noqa: PLC0415 - costs --help nothing so
    from hopyard.lab.bench.machine import machine_facts  # noqa: PLC0415 - as above
    from hopyard.lab.bench.suite import measured  # noqa: PLC0415 - brings every service
    from hopyard.lab.bench.tables import report_table  # noqa: PLC0415 - as above

    make_folder(run.data)
    machine, done = machine_facts(run.data), list[Benchmark]()
    try:
        for one in measured(chosen, run):
            done.append(one)
    finally:
        if done:
            report = BenchReport(machine=machine, versions=versions(), benchmarks=tuple(done))
            show(report, report_table(report), as_json=as_json, out=out)


def _refuse_useless(context: typer.Context, chosen: Sequence[Subject]) -> None:
    """Raises Invalid for an option that none of the benchmarks takes."""
    for parameter, takers in TAKEN_BY.items():
        if not set(takers) & set(chosen) and (useless := typed(context, parameter)):
            raise Invalid(f"{useless[0]} needs one of these to be measured: {', '.join(takers)}")


def _say_what_it_ignores() -> None:
    """A figure of a simulation is comparable with others only under the scenario's own settings."""
    from loadgen.effective_settings import given_in  # noqa: PLC0415 - brings the YAML parser

    try:
        ignored = given_in(os.environ)
    except ValueError as error:
        raise Invalid(str(error)) from None
    if ignored:
        say(f"simulation: by its scenario alone, without {', '.join(ignored.values())}")


def _numbers(option: str, text: str, most: int) -> tuple[int, ...]:
    """Raises Invalid."""
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise Invalid(f"{option} {text}: not numbers") from None
    if min(numbers) < 1 or max(numbers) > most:
        raise Invalid(f"{option} {text}: from 1 to {most}")
    return numbers


def _grown(scenario: str | None, counts: str | None) -> "Growth | None":
    from hopyard.lab.bench.growth import Growth  # noqa: PLC0415 - brings every service
    from loadgen.scenarios import load_scenario  # noqa: PLC0415 - as above

    if scenario is None and counts is None:
        return None
    if scenario is None or counts is None:
        raise Invalid("give --scenario and --jobs together")
    return Growth(load_scenario(scenario), _numbers("--jobs", counts, JOBS_MOST))


def _known(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    for name in names:
        if name not in tuple(Backend):
            raise Invalid(f"--backends {text}: {name} is not one of {', '.join(Backend)}")
    return names


def _known_classes(text: str) -> tuple[str, ...]:
    from hopyard.lab.bench.planning.zoo import CLASSES  # noqa: PLC0415 - brings numpy

    if text == EVERY_CLASS:
        return tuple(CLASSES)
    names = tuple(text.split(","))
    for name in names:
        if name not in CLASSES:
            raise Invalid(f"--classes {text}: {name} is not one of {', '.join(CLASSES)}, {EVERY_CLASS}")
    return names


def register(app: typer.Typer) -> None:
    app.command("bench")(bench)
