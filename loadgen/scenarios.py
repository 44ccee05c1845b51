"""Scenarios and clusters: those that ship with the product, by name, and those that users wrote, by path."""

from collections.abc import Callable
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

import msgspec

from loadgen.catalogue.files import check_catalogue, read_catalogue
from loadgen.catalogue.reference import FitsNowhere
from loadgen.catalogue.specs import Catalogue, UnknownWorkload, catalogue_with
from loadgen.workloads.mixes import UnknownMix, mean_gpu_hours, mix_named
from schemas.cluster import ClusterFile
from schemas.scenarios import (
    LATEST_S,
    Arrival,
    ListedWorkload,
    PoissonWorkload,
    ScenarioFile,
    TraceWorkload,
)
from schemas.settings import FORMER_NAMES, Settings
from shared.domain.catalogue import merged
from shared.domain.cluster import InvalidCluster, nodes_of
from shared.domain.demand import job_spec
from shared.domain.invalid_job import InvalidJob
from shared.runtime.files import InvalidFile, T, fault, parse, read_file
from shared.runtime.settings import by_present_names

_KINDS = {field.name: field.type for field in msgspec.structs.fields(Settings)}
_AnySettings = msgspec.defstruct(
    Settings.__name__,
    [(former, _KINDS[name] | msgspec.UnsetType, msgspec.UNSET) for former, name in FORMER_NAMES.items()],
    bases=(Settings,),
    frozen=True,
    kw_only=True,
)
"""settings by their present names, or by former ones"""


class _WithSettings(msgspec.Struct):
    """A scenario file of which only the settings are read, to check them where their lines are known."""

    settings: _AnySettings = _AnySettings()  # type: ignore[valid-type]


def scenario_names() -> list[str]:
    """Names of the scenarios that ship with the product."""
    return _names("scenarios")


def cluster_names() -> list[str]:
    """Names of the clusters that ship with the product."""
    return _names("clusters")


def load_scenario(name_or_path: str | Path, catalogue: str = "") -> ScenarioFile:
    """A checked scenario: its cluster and mix exist, its settings and jobs are valid.

    `catalogue`: path of a file with further entries for it; empty: none. Raises InvalidFile.
    """
    scenario, path = _load(name_or_path, "scenarios", ScenarioFile)
    _load(name_or_path, "scenarios", _WithSettings)
    scenario = msgspec.structs.replace(scenario, settings=by_present_names(scenario.settings))
    if "seed" in scenario.settings:
        raise fault(path, "$.settings.seed", "has no effect: the seed of a run is `workload.seed`, or --seed")
    if isinstance(scenario.cluster, ClusterFile):
        _check_cluster(scenario.cluster, path, "$.cluster.nodes")
    elif scenario.cluster not in cluster_names():  # a path, relative to the scenario's file
        file = Path(path).parent / Path(scenario.cluster).expanduser()
        if not file.is_file():
            reason = f"neither a file nor one of {', '.join(cluster_names())}"
            raise fault(path, "$.cluster", reason)
        scenario = msgspec.structs.replace(scenario, cluster=load_cluster(file))
    check_catalogue(scenario.catalogue, path, "$.catalogue")
    match scenario.workload:
        case ListedWorkload() as workload:
            _check_jobs(workload, path)
        case PoissonWorkload():
            pass
        case TraceWorkload() as workload:
            if workload.hours is not None and workload.hours[0] >= workload.hours[1]:
                raise fault(path, "$.workload.hours", "the first hour is not before the second")
            if workload.format is not None and workload.columns is not None:
                raise fault(path, "$.workload.format", "has no effect: the columns say how the file is read")
            located = msgspec.structs.replace(workload, path=str(Path(path).parent / workload.path))
            scenario = msgspec.structs.replace(scenario, workload=located)
    whole = extended(_with_its_file(scenario, Path(path).parent), catalogue)
    _check_mix(whole, path)
    return whole


def _with_its_file(scenario: ScenarioFile, folder: Path) -> ScenarioFile:
    """The scenario with the entries of the file that its setting `catalogue` names, relative to `folder`."""
    settings = dict(scenario.settings)
    named = str(settings.pop("catalogue", ""))
    without = msgspec.structs.replace(scenario, settings=settings)
    return extended(without, str(folder / Path(named).expanduser())) if named else without


def extended(scenario: ScenarioFile, path: str) -> ScenarioFile:
    """The scenario with a file's entries in its catalogue; they replace its own of the same name.

    `path`: empty for no file. Raises InvalidFile.
    """
    if not path:
        return scenario
    return msgspec.structs.replace(scenario, catalogue=merged(scenario.catalogue, read_catalogue(path)))


def catalogue_of(scenario: ScenarioFile) -> Catalogue:
    """The shipped entries and the scenario's."""
    return catalogue_with(scenario.catalogue)


def load_cluster(name_or_path: str | Path) -> ClusterFile:
    """A checked cluster. Raises InvalidFile."""
    cluster, path = _load(name_or_path, "clusters", ClusterFile)
    _check_cluster(cluster, path, "$.nodes")
    return cluster


def cluster_of(scenario: ScenarioFile) -> ClusterFile:
    """The scenario's cluster, named or written out. Raises InvalidFile."""
    return load_cluster(scenario.cluster) if isinstance(scenario.cluster, str) else scenario.cluster


def own_seed(scenario: ScenarioFile) -> int:
    """The seed that the workload names; 1 for jobs that are listed."""
    workload = scenario.workload
    return 1 if isinstance(workload, ListedWorkload) else workload.seed


def arrivals(scenario: ScenarioFile, seed: int | None = None) -> list[Arrival]:
    """The scenario's jobs in order of arrival; `seed` in place of the workload's own. Raises InvalidFile."""
    known, drawn_by = catalogue_of(scenario), own_seed(scenario) if seed is None else seed
    match scenario.workload:
        case ListedWorkload(jobs=jobs):
            listed = [Arrival(at_s=one.at_s, job=one.job) for one in jobs]
            return sorted(listed, key=lambda arrival: arrival.at_s)
        case PoissonWorkload() as drawn:
            from loadgen.workloads.poisson import poisson_arrivals  # noqa: PLC0415 - brings numpy

            found = _drawn(scenario, lambda cluster: poisson_arrivals(drawn, cluster, drawn_by, known))
            if found[-1].at_s > LATEST_S:
                pace = f"at {drawn.rate_per_hour:g} jobs an hour"
                reason = f"{pace} the last of {drawn.count} arrives after {found[-1].at_s:.3g} s"
                field = "$.workload.rate_per_hour"
                raise InvalidFile(scenario.name, None, field, f"{reason}: at most {LATEST_S:g}")
            return found
        case TraceWorkload() as traced:
            from loadgen.workloads.trace import trace_arrivals  # noqa: PLC0415 - as above

            return _drawn(scenario, lambda cluster: trace_arrivals(traced, cluster, drawn_by, known))


def _drawn(scenario: ScenarioFile, draw: Callable[[ClusterFile], list[Arrival]]) -> list[Arrival]:
    try:
        return draw(cluster_of(scenario))
    except (FitsNowhere, UnknownWorkload) as error:
        raise InvalidFile(scenario.name, None, "$.cluster", str(error)) from None


def _load(name_or_path: str | Path, folder: str, kind: type[T]) -> tuple[T, str]:
    """The content of a shipped file, by name, or of another one, by path; and the file's path."""
    text = str(name_or_path)
    if text in _names(folder):
        file = _folder(folder) / f"{text}.yaml"
        return parse(file.read_text("utf-8"), str(file), kind), str(file)
    if not Path(text).exists():
        reason = f"neither a file nor one of {', '.join(_names(folder))}"
        raise InvalidFile(text, None, None, reason)
    return read_file(text, kind), text


def _names(folder: str) -> list[str]:
    found = (entry.name for entry in _folder(folder).iterdir())
    return sorted(name.removesuffix(".yaml") for name in found if name.endswith(".yaml"))


def _folder(name: str) -> Traversable:
    return resources.files("loadgen") / name


def _check_cluster(cluster: ClusterFile, path: str, field: str) -> None:
    try:
        nodes_of(cluster)
    except InvalidCluster as error:
        raise fault(path, field, str(error)) from None


def _check_mix(scenario: ScenarioFile, path: str) -> None:
    if isinstance(scenario.workload, ListedWorkload):
        return
    try:
        mix = mix_named(scenario.workload.mix, catalogue_of(scenario))
    except UnknownMix as error:
        raise fault(path, "$.workload.mix", str(error)) from None
    if isinstance(scenario.workload, PoissonWorkload) and (wanted := scenario.workload.gpu_hours_mean):
        least, most = mean_gpu_hours(mix)
        if not least <= wanted <= most:
            reason = f"jobs of {scenario.workload.mix} have {least:.3g} to {most:.3g} GPU-hours in the mean"
            raise fault(path, "$.workload.gpu_hours_mean", f"{reason}, not {wanted:g}")


def _check_jobs(workload: ListedWorkload, path: str) -> None:
    for index, arriving in enumerate(workload.jobs):
        try:
            job_spec(arriving.job)
        except InvalidJob as error:
            field = f"$.workload.jobs[{index}].job{error.field.removeprefix('$')}"
            raise fault(path, field, error.reason) from None
