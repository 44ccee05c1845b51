"""Saves the problem of every plan for `hopyard solve`, in files named by round, kind and number."""

from pathlib import Path

import msgspec

from schemas.problems import NOT_SAVED
from services.planner.policies.contract.view import View
from services.planner.solver.effort import Effort
from services.planner.solver.files import write_problem
from services.planner.solver.problem import Problem, Solution, Solve
from services.planner.work.steps import Decide
from shared.runtime.disk import make_folder


class _Noted(msgspec.Struct, frozen=True):
    problem: Problem
    jobs: tuple[str, ...]
    view: View


class Dump:
    """Notes problems as they are solved, and writes them when there is time for it."""

    def __init__(self, folder: str) -> None:
        """`folder`: empty: nothing is saved. That problems cannot be saved is logged; planning goes on."""
        self._folder = Path(folder) if folder else None
        self._noted: list[_Noted] = []
        self._failed = False
        """whether the last problem could not be saved"""

    def watching(self, step: Decide, solve: Solve) -> Solve:
        """`solve`, with every problem noted."""
        if self._folder is None:
            return solve

        def watched(problem: Problem, effort: Effort) -> Solution:
            self._noted.append(_Noted(problem, _names(problem, step), step.view))
            return solve(problem, effort)

        return watched

    def write(self) -> None:
        """Save the problems noted since the last call."""
        noted, self._noted = self._noted, []
        for one in noted:
            try:
                self._write(one)
            except OSError as error:
                self._report(error)
                self._failed = True
            else:
                self._failed = False

    def _report(self, error: OSError) -> None:
        """Log why problems are not saved, once until one is."""
        if self._failed:
            return
        import structlog  # noqa: PLC0415 - every process of policies would wait for it

        log = structlog.get_logger()
        log.warning(NOT_SAVED, folder=str(self._folder), reason=error.strerror or str(error))

    def _write(self, noted: _Noted) -> None:
        assert self._folder is not None
        make_folder(self._folder)
        write_problem(_unused(self._folder, noted.view), noted.problem, noted.jobs)


def _names(problem: Problem, step: Decide) -> tuple[str, ...]:
    """Ids of the problem's jobs, if it is about the jobs of `wanted`; else their indices."""
    wanted = step.wanted.jobs
    return wanted if len(wanted) == problem.jobs else tuple(str(index) for index in range(problem.jobs))


def _unused(folder: Path, view: View) -> Path:
    """The first name of the round that is not taken, also after a restart."""
    taken = {path.name.split(".")[0].rsplit("-", 1)[1] for path in folder.glob(f"{view.round:06d}-*.json.gz")}
    number = next(number for number in range(len(taken) + 1) if f"{number:04d}" not in taken)
    return folder / f"{view.round:06d}-{view.kind.value}-{number:04d}.json.gz"
