"""Scenarios as the commands take them: by name or file, perhaps with the arrivals of a trace."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from hopyard.failures import Invalid
from loadgen import scenarios
from schemas.cluster import ClusterFile
from schemas.scenarios import ListedWorkload, ScenarioFile, TraceWorkload
from services.planner.work.registry import Registry, UnfitPolicy

T = TypeVar("T")


def chosen_scenario(name: str, trace: Path | None = None) -> ScenarioFile:
    """A scenario whose jobs can be drawn. Raises Invalid."""
    scenario = valid(lambda: scenarios.load_scenario(name))
    if trace is not None:
        scenario = _traced(scenario, trace)
    valid(lambda: scenarios.arrivals(scenario))
    return scenario


def _traced(scenario: ScenarioFile, trace: Path) -> ScenarioFile:
    """Raises Invalid when the trace's jobs could be given no models."""
    workload = scenario.workload
    if isinstance(workload, ListedWorkload):
        raise Invalid(f"{scenario.name} lists its jobs one by one; --trace needs one with a mix of models")
    arrivals = TraceWorkload(path=str(trace.absolute()), mix=workload.mix, seed=workload.seed)
    return msgspec.structs.replace(scenario, workload=arrivals)


def cluster_of(scenario: ScenarioFile) -> ClusterFile:
    """Raises Invalid."""
    return valid(lambda: scenarios.cluster_of(scenario))


def chosen_cluster(name: str) -> ClusterFile:
    """Raises Invalid."""
    return valid(lambda: scenarios.load_cluster(name))


def check_policy(name: str | None) -> None:
    """Raises Invalid for a policy that cannot plan or lacks an option.

    None, the scenario's own, is not checked.
    """
    if name is None:
        return
    try:
        Registry().find(name)
    except UnfitPolicy as error:
        raise Invalid(str(error)) from None


def valid(load: Callable[[], T]) -> T:
    """What `load` makes of a user's file. Raises Invalid."""
    try:
        return load()
    except (ValueError, OSError) as error:
        raise Invalid(str(error)) from None
