"""Serves policies and the solver in a process that can be ended: see `shared.runtime.offload`."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from schemas.settings import Settings
from services.planner.core.tasks import Known, Look, Unfit
from services.planner.policies.contract.configurations import Configurations
from services.planner.policies.contract.decision import Decision
from services.planner.policies.contract.view import View
from services.planner.policies.registry import Registry
from services.planner.solver import load, solving_from_now
from services.planner.work.problem_files import Dump
from services.planner.work.steps import Decide, PolicyFailed, Want, decided_by, looked_at, wanted_by
from shared.runtime.offload import HelperProcess, Offload
from shared.runtime.plugins import accepted_policies

Request = Look | Want | Decide
Answer = Known | Unfit | Configurations | Decision | PolicyFailed


class PolicyServer:
    """Implements `Server`: steps of a plan in, what the policy makes of them out."""

    def __init__(self, settings: Settings) -> None:
        self._solver = settings.solver
        self._registry = Registry(accepted_policies(settings))
        self._dump = Dump(settings.dump_problems)
        self._view: View | None = None
        """the view of the last `Want`"""

    def warm(self) -> None:
        load(self._solver)

    def answer(self, request: Request) -> Answer:
        with _back_in_its_folder():
            return self._answered(request)

    def _answered(self, request: Request) -> Answer:
        match request:
            case Look():
                return looked_at(self._registry, request)
            case Want():
                self._view = request.view
                return wanted_by(self._registry, request)
            case Decide():
                step = self._continued(request)
                solve = solving_from_now(step.view.effort)
                return decided_by(self._registry, step, self._dump.watching(step, solve))

    def _continued(self, step: Decide) -> Decide:
        """The step with the view object of `Want`, if the two are equal: policies cache by the object."""
        view, self._view = self._view, None
        if view is None or view is step.view or view != step.view:
            return step
        return msgspec.structs.replace(step, view=view)

    def after_answer(self) -> None:
        self._dump.write()


@contextlib.contextmanager
def _back_in_its_folder() -> Iterator[None]:
    """At the end the working directory is that of the beginning: a policy may have changed it.

    Files that settings and commands name may be relative to it.
    """
    try:
        before = Path.cwd()
    except OSError:  # it was removed
        yield
        return
    try:
        yield
    finally:
        os.chdir(before)


def policy_process(settings: Settings, offload: Offload) -> HelperProcess:
    return offload.process(
        "planner-policies", PolicyServer, settings, memory_bytes=settings.policy_memory_max_bytes
    )
