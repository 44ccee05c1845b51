"""Scenarios as commands name them: by name or file, optionally with the arrivals of a trace."""

import os
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec.structs import fields

from hopyard.failures import Invalid, not_installed, worded
from hopyard.local.processes import Say
from loadgen import scenarios
from loadgen.catalogue.files import read_catalogue
from loadgen.effective_settings import EffectiveSettings, catalogue_path, effective_settings
from schemas.catalogue import NOTHING_MORE, CatalogueFile
from schemas.cluster import ClusterFile
from schemas.scenarios import ListedWorkload, ScenarioFile, TraceColumns, TraceWorkload
from schemas.settings import Settings
from services.planner.policies.registry import Registry, UnfitPolicy, names, options_kind
from shared.runtime.plugins import UnknownPlugin
from shared.runtime.settings import UnknownSetting, Value

T = TypeVar("T")
EXAMPLE = "submit=date,gpus=n"
"""an example value of --columns"""
MODELS_NAMED = 5


def unheard(_: str) -> None: ...


def chosen_scenario(
    name: str, trace: Path | None = None, columns: str | None = None, say: Say = unheard
) -> ScenarioFile:
    """A scenario whose jobs can be drawn, with the catalogue of this shell.

    `columns`: of the trace, as they are typed. Prints how many jobs train another model than their trace
    says. Raises Invalid.
    """
    scenario = _with_catalogue(name)
    if trace is not None:
        scenario = _traced(scenario, trace, None if columns is None else named_columns(columns))
    elif columns is not None:
        raise Invalid("--columns needs a --trace, whose columns it names")
    arrivals = valid(lambda: scenarios.arrivals(scenario))
    if others := Counter(one.traced_model for one in arrivals if one.traced_model is not None):
        some = ", ".join(f"{model} ({jobs})" for model, jobs in others.most_common(MODELS_NAMED))
        more = " …" if len(others) > MODELS_NAMED else ""
        say(f"{others.total()} of {len(arrivals)} jobs train another model than the trace says: {some}{more}")
    return scenario


def chosen_catalogue(scenario: str | None) -> CatalogueFile:
    """Entries beside the shipped ones: of a scenario, and of the file that the settings of this shell name.

    Raises Invalid.
    """
    if scenario is not None:
        return _with_catalogue(scenario).catalogue
    path = _set(lambda: catalogue_path(os.environ))
    return valid(lambda: read_catalogue(path)) if path else NOTHING_MORE


def _with_catalogue(name: str) -> ScenarioFile:
    path = _set(lambda: catalogue_path(os.environ))
    return valid(lambda: scenarios.load_scenario(name, path))


def simulated_scenario(scenario: ScenarioFile, say: Say, decided: Mapping[str, str]) -> EffectiveSettings:
    """The scenario with the settings of this shell and of its settings file, as a live stack has them.

    `decided`: settings that an option of the command decides, with the option. Prints which settings are
    used and which have no effect in a simulation. Raises Invalid, also for a policy that cannot plan.
    """
    found = _set(lambda: effective_settings(scenario, os.environ, decided))
    settings = check_settings(found.scenario, {})
    if found.given:
        values = ", ".join(f"{name}={value}" for name, value in sorted(found.given.items()))
        say(f"with settings of this shell: {values}")
    if found.ignored:
        say(f"without effect in a simulation: {', '.join(found.ignored)}")
    check_policy(None if "policy" in decided else settings.policy)
    return found


def check_settings(scenario: ScenarioFile, chosen: Mapping[str, Value]) -> Settings:
    """The settings of the scenario's runs, with those that are `chosen` for some of them.

    Raises Invalid for settings with which no run could begin.
    """
    from loadgen.simulation import virtual_settings  # noqa: PLC0415 - brings every service
    from loadgen.stack import check_world  # noqa: PLC0415 - as above

    settings = _set(lambda: virtual_settings(scenario, chosen))
    catalogue = valid(lambda: scenarios.extended(scenario, settings.catalogue)).catalogue
    _set(lambda: check_world(catalogue, settings))
    return settings


def _set(load: Callable[[], T]) -> T:
    """The settings of this shell, by `load`. Raises Invalid."""
    try:
        return load()
    except UnknownSetting as error:
        raise Invalid(f"{error}{_as_option(error.name)}") from None
    except (ValueError, UnknownPlugin) as error:
        raise Invalid(str(error)) from None


def _as_option(name: str) -> str:
    """A hint for a setting that is an option of a policy."""
    having = [policy for policy in names() if name in _options_of(policy)]
    return f"; it is an option of a policy: --policy {having[0]}+{name}=VALUE" if having else ""


def _options_of(policy: str) -> tuple[str, ...]:
    try:
        return options_kind(policy).__struct_fields__
    except UnfitPolicy:
        return ()


def named_columns(text: str) -> TraceColumns:
    """`submit=COLUMN,gpus=COLUMN,…`. Raises Invalid."""
    pairs = [part.partition("=") for part in text.split(",")]
    named = [what.strip() for what, _, _ in pairs]
    for what, times in Counter(named).items():
        if times > 1:
            raise Invalid(f"--columns {text}: {what} is named {times} times")
    try:
        return msgspec.convert(dict(zip(named, (column for *_, column in pairs), strict=True)), TraceColumns)
    except msgspec.ValidationError:
        must = ", ".join(field.name for field in fields(TraceColumns) if field.required)
        may = ", ".join(field.name for field in fields(TraceColumns) if not field.required)
        wanted = f"name the columns for {must}, optionally for {may}, as {EXAMPLE}"
        raise Invalid(f"--columns {text}: {wanted}") from None


def _traced(scenario: ScenarioFile, trace: Path, columns: TraceColumns | None) -> ScenarioFile:
    """Raises Invalid when the trace's jobs could be given no models."""
    workload = scenario.workload
    if isinstance(workload, ListedWorkload):
        raise Invalid(f"{scenario.name} lists its jobs one by one; --trace needs one with a mix of models")
    arrivals = TraceWorkload(
        path=str(trace.absolute()), columns=columns, mix=workload.mix, seed=workload.seed
    )
    return msgspec.structs.replace(scenario, about=f"its cluster, jobs of {trace.name}", workload=arrivals)


def cluster_of(scenario: ScenarioFile) -> ClusterFile:
    """Raises Invalid."""
    return valid(lambda: scenarios.cluster_of(scenario))


def chosen_cluster(name: str) -> ClusterFile:
    """Raises Invalid."""
    return valid(lambda: scenarios.load_cluster(name))


def check_policy(name: str | None) -> None:
    """Raises Invalid for a policy that cannot plan or lacks an option, NotInstalled where it lacks a library.

    None, where none is named or something else decides, is not checked.
    """
    if name is None:
        return
    try:
        Registry().find(name)
    except UnfitPolicy as error:
        raise not_installed(error) or Invalid(str(error)) from None


def valid(load: Callable[[], T]) -> T:
    """The result of `load` on a user's file. Raises Invalid."""
    try:
        return load()
    except ValueError as error:
        raise Invalid(str(error)) from None
    except OSError as error:
        raise Invalid(worded(error)) from None
