"""solve: a saved problem of the planner, again."""

import os
import sys
import threading
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from hopyard.commands.options import AsJson, Out, apart
from hopyard.failures import Invalid
from hopyard.show.stages import STAGES
from hopyard.show.tables import facts_table
from hopyard.show.terminal import show
from hopyard.show.units import duration, precise
from schemas.problems import SolveResult


class Backend(StrEnum):
    """The back ends that solve."""

    HOPYARD = "hopyard"
    HIGHS = "highs"
    SCIP = "scip"
    CP_SAT = "cp-sat"


def solve(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            callback=apart,
            help="A saved problem: JSON, plain or gzipped.",
        ),
    ],
    *,
    backend: Annotated[Backend, typer.Option("--backend", help="Solver to use.")] = Backend.HOPYARD,
    gap: Annotated[
        float, typer.Option("--gap", min=0, max=1, help="Stop at this proven relative gap.")
    ] = 0.01,
    deadline_s: Annotated[
        float,
        typer.Option(
            "--deadline", metavar="SECONDS", min=0, max=86_400, help="Stop after this many seconds."
        ),
    ] = 10.0,
    as_json: AsJson = False,
    out: Out = None,
) -> None:
    """Solve a saved problem, with a proven bound, under a deadline.

    Plans save theirs with `hopyard simulate --dump-problems DIR`, and live
    with the setting dump_problems. docs/solving.md describes the format.

    $ hopyard solve 000012-first-0000.json.gz
    $ hopyard solve problem.json --backend highs --gap 0.001 --deadline 60 --json
    """
    from services.planner.solver import load  # noqa: PLC0415 - as above
    from services.planner.solver import solve as run  # noqa: PLC0415 - as above
    from services.planner.solver.effort import Effort  # noqa: PLC0415 - as above
    from services.planner.solver.files import read_problem, result_of  # noqa: PLC0415 - brings numpy

    try:
        saved = read_problem(file)
    except OSError as error:
        raise Invalid(f"{file}: {error.strerror or error}") from None
    load(backend)
    before = threading.active_count()
    solution = run(saved.problem, Effort(gap=gap, budget_s=deadline_s, backend=backend))
    result = result_of(saved, solution, backend)
    show(result, facts_table(_facts(result)), as_json=as_json, out=out)
    if threading.active_count() > before:
        _leave()


def _facts(result: SolveResult) -> dict[str, str]:
    placed = sum(index is not None for index in result.choice)
    return {
        "objective": precise(result.objective),
        "bound": precise(result.bound),
        "gap": f"{result.gap:.3%}",
        "time": duration(result.seconds),
        "back end": result.backend,
        "found": STAGES[result.stage],
        "jobs placed": f"{placed} of {len(result.choice)}",
    }


def _leave() -> None:
    """A solver past its deadline still runs in a thread, and would delay or abort a normal exit."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def register(app: typer.Typer) -> None:
    app.command("solve")(solve)
