"""Entries of a user's own: where they are written, what they replace, what is wrong with them."""

from pathlib import Path

import msgspec
import pytest

from hopyard.lab.runs.cache import name_of
from loadgen.catalogue.files import read_catalogue
from loadgen.catalogue.specs import catalogue_with, shipped
from loadgen.effective_settings import effective_settings
from loadgen.scenarios import arrivals, extended, load_scenario
from loadgen.simulation import Engine, simulate
from loadgen.world import EmulatedWorld
from schemas.catalogue import NOTHING_MORE, CatalogueFile
from schemas.ids import GpuType
from schemas.scenarios import ScenarioFile
from schemas.settings import Settings
from services.agent.work.emulated import emulated
from shared.domain.catalogue import merged
from shared.runtime.clock import LoopClock
from shared.runtime.files import InvalidFile
from tests.hopyard.lab.experiment_builders import small, trial

GPU = "{fp32: 75e12, memory: 180e9, bandwidth: 7.7e12, sustained: 0.8}"
MODEL = (
    "{model: mlp, dataset: cifar10, batch: 64, optimizer: sgd, learning_rate: 0.1, parameters: 1e6, "
    "forward: 2e6, activations: 1e5, kernels: 10, efficiency: 0.3, precision: fp32, pattern: 1}"
)
OWN = f"""\
gpus:
  b200: {GPU}
models:
  - {MODEL}
"""
SLOW_XP = "gpus:\n  titan-xp: {fp32: 1e12, memory: 12.88e9, bandwidth: 50e9, sustained: 0.9}\n"


def written(folder: Path, text: str, name: str = "mine.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def scenario_with(folder: Path, own: str) -> Path:
    section = "".join(f"  {line}\n" for line in own.splitlines())
    text = "name: own\ncluster: tiny\nworkload: {arrivals: poisson, count: 3, mix: short}\n"
    return written(folder, f"{text}catalogue:\n{section}", "own.yaml")


def test_entries_join_the_shipped_ones(tmp_path: Path) -> None:
    known = catalogue_with(read_catalogue(written(tmp_path, OWN)))
    assert set(known.gpus) - set(shipped().gpus) == {"b200"}
    assert set(known.models) - set(shipped().models) == {("mlp", "cifar10")}
    assert "mlp on cifar10" in known.workloads


def test_an_entry_of_a_known_name_replaces_it_and_its_place(tmp_path: Path) -> None:
    known = catalogue_with(read_catalogue(written(tmp_path, SLOW_XP)))
    assert list(known.gpus) == list(shipped().gpus)
    assert [name for name in known.gpus if known.gpus[name] != shipped().gpus[name]] == ["titan-xp"]


def test_the_same_entries_are_the_same_catalogue(tmp_path: Path) -> None:
    path = written(tmp_path, OWN)
    assert catalogue_with(read_catalogue(path)) is catalogue_with(read_catalogue(path))
    assert catalogue_with(CatalogueFile()) is shipped()


FAULTS = [
    ("memory: 180e9", "memroy: 180e9", 2, "gpus.b200.memroy", "did you mean memory?"),
    ("sustained: 0.8", "sustained: 1.8", 2, "gpus.b200.sustained", "<= 1"),
    ("optimizer: sgd", "optimizer: sdg", 4, "models[0].optimizer", "did you mean sgd?"),
    ("dataset: cifar10", "dataset: cifar-10", 4, "models[0].dataset", "did you mean cifar10?"),
    (f"  - {MODEL}", f"  - {MODEL}\n  - {MODEL}", 5, "models[1]", "mlp on cifar10 is given twice"),
    ("gpus:", "gpu:", 1, "gpu", "did you mean gpus?"),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: str(fault[3]))
def test_a_fault_of_a_file_is_named_by_line_and_field(
    tmp_path: Path, fault: tuple[str, str, int, str, str]
) -> None:
    old, new, line, field, said = fault
    with pytest.raises(InvalidFile) as refused:
        read_catalogue(written(tmp_path, OWN.replace(old, new)))
    assert (refused.value.line, refused.value.field) == (line, f"$.{field}")
    assert said in refused.value.reason


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: str(fault[3]))
def test_a_fault_of_a_section_is_named_by_line_and_field(
    tmp_path: Path, fault: tuple[str, str, int, str, str]
) -> None:
    old, new, line, field, said = fault
    with pytest.raises(InvalidFile) as refused:
        load_scenario(scenario_with(tmp_path, OWN.replace(old, new)))
    assert (refused.value.line, refused.value.field) == (line + 4, f"$.catalogue.{field}")
    assert said in refused.value.reason


def test_agents_read_the_file_that_their_setting_names(tmp_path: Path) -> None:
    settings = Settings(catalogue=str(written(tmp_path, OWN)))
    runner = emulated(settings, LoopClock())
    assert set(runner.workloads) - set(EmulatedWorld(1).workloads) == {"mlp on cifar10"}


def test_an_agent_names_the_fault_of_its_file(tmp_path: Path) -> None:
    path = written(tmp_path, OWN.replace("cifar10", "mnist"))
    with pytest.raises(InvalidFile, match=r"mine\.yaml:4: \$\.models\[0\]\.dataset: mnist is none of"):
        emulated(Settings(catalogue=str(path)), LoopClock())


def test_a_scenario_s_catalogue_path_is_relative_to_its_file(tmp_path: Path) -> None:
    written(tmp_path, OWN)
    text = "name: own\ncluster: tiny\nworkload: {arrivals: poisson, count: 3, mix: short}\n"
    found = load_scenario(written(tmp_path, f"{text}settings: {{catalogue: mine.yaml}}\n", "own.yaml"))
    assert set(found.catalogue.gpus) == {"b200"}
    assert found.settings == {}


def test_the_file_of_the_setting_wins_over_the_section(tmp_path: Path) -> None:
    scenario = load_scenario(scenario_with(tmp_path, SLOW_XP + f"  b200: {GPU}\n"))
    faster = written(tmp_path, SLOW_XP.replace("1e12", "2e12"))
    found = effective_settings(scenario, {"HOPYARD_CATALOGUE": str(faster)})
    assert found.scenario.catalogue.gpus[GpuType("titan-xp")].fp32 == 2e12
    assert set(found.scenario.catalogue.gpus) == {"titan-xp", "b200"}
    assert found.given == {"catalogue": str(faster)}
    assert "catalogue" not in found.scenario.settings


def slowed(scenario: ScenarioFile, folder: Path) -> ScenarioFile:
    return extended(scenario, str(written(folder, SLOW_XP)))


@pytest.mark.parametrize(
    ("name", "job"),
    [
        ("mlp_2", "mlp-2-cifar10-0000"),
        ("llama-3.1-8b", "llama-3-1-8b-cifar10-0000"),
        ("EfficientNet B0", "efficientnet-b0-cifar10-0000"),
        ("(模型)", "cifar10-0000"),
        ("x" * 190, "x" * 58 + "-0000"),
    ],
)
def test_jobs_of_a_model_of_any_name_are_accepted(tmp_path: Path, name: str, job: str) -> None:
    mix = (
        "mixes:\n  m:\n    longest_h: 5\n"
        "    sizes: {small: {hours: [0.1, 1], gpus: [1, 2], choices: [1, 2]}}\n"
        f'    jobs: [{{model: "{name}", dataset: cifar10, size: small}}]\n'
    )
    own = OWN.replace("model: mlp", f'model: "{name}"') + mix
    path = scenario_with(tmp_path, own)
    path.write_text(path.read_text().replace("mix: short", "mix: m"))
    scenario = load_scenario(path)
    assert arrivals(scenario)[0].job.name == job
    assert simulate(scenario).result.refused == ()


def test_reference_speeds_follow_the_catalogue(tmp_path: Path) -> None:
    """A job of so many GPU-hours has fewer samples where the GPUs are slower."""
    tiny = load_scenario("tiny")
    whole, less = arrivals(tiny, 1), arrivals(slowed(tiny, tmp_path), 1)
    assert sum(one.job.samples or 0 for one in less) < sum(one.job.samples or 0 for one in whole)


@pytest.mark.parametrize("engine", ["conductor", "loop"])
def test_the_world_of_a_simulation_follows_the_catalogue(tmp_path: Path, engine: Engine) -> None:
    ran = simulate(small(), policy="fifo", engine=engine)
    other = simulate(slowed(small(), tmp_path), policy="fifo", engine=engine)
    named = simulate(
        small(), policy="fifo", engine=engine, overrides={"catalogue": str(tmp_path / "mine.yaml")}
    )
    assert other.result.event_log_hash != ran.result.event_log_hash
    assert named.result.event_log_hash == other.result.event_log_hash


def test_both_engines_run_the_same_world(tmp_path: Path) -> None:
    scenario = slowed(load_scenario("tiny"), tmp_path)
    conducted, looped = simulate(scenario, engine="conductor"), simulate(scenario, engine="loop")
    assert conducted.result.event_log_hash == looped.result.event_log_hash


def test_a_stored_outcome_is_named_by_the_contents_of_the_catalogue(tmp_path: Path) -> None:
    """And not by its path."""
    names = set()
    for text in (OWN, SLOW_XP, OWN):
        path = written(tmp_path, text)
        scenario = effective_settings(trial().scenario, {"HOPYARD_CATALOGUE": str(path)}).scenario
        names.add(name_of(msgspec.structs.replace(trial(), scenario=scenario)))
    names.add(name_of(trial()))
    assert len(names) == 3


def test_merging_two_empty_catalogues_gives_an_empty_one() -> None:
    assert merged(NOTHING_MORE, NOTHING_MORE) == NOTHING_MORE


MIX = """\
mixes:
  few:
    longest_h: 5
    sizes:
      tiny: {hours: [0.1, 0.2], gpus: [1, 2], choices: [1, 2]}
    jobs:
      - {model: resnet18, dataset: cifar10, size: tiny, weight: 3}
      - {model: mlp, dataset: cifar10, size: tiny}
"""
OF_THE_MIX = "name: own\ncluster: tiny\nworkload: {arrivals: poisson, count: 8, mix: few}\n"


def drawn(scenario: ScenarioFile) -> list[str]:
    return sorted(arrival.job.workload.model for arrival in arrivals(scenario))


def test_a_mix_of_a_scenario_s_own_is_drawn_from(tmp_path: Path) -> None:
    section = "".join(f"  {line}\n" for line in (OWN + MIX).splitlines())
    path = written(tmp_path, f"{OF_THE_MIX}catalogue:\n{section}", "own.yaml")
    assert drawn(load_scenario(path)) == ["mlp"] * 2 + ["resnet18"] * 6


def test_a_mix_may_stand_in_the_file_that_the_setting_names(tmp_path: Path) -> None:
    file = written(tmp_path, OWN + MIX)
    path = written(tmp_path, OF_THE_MIX, "own.yaml")
    assert drawn(load_scenario(path, str(file))) == ["mlp"] * 2 + ["resnet18"] * 6
    named = written(tmp_path, f"{OF_THE_MIX}settings: {{catalogue: mine.yaml}}\n", "named.yaml")
    assert drawn(load_scenario(named)) == ["mlp"] * 2 + ["resnet18"] * 6
    with pytest.raises(InvalidFile, match=r"no mix is called few; there are .*short"):
        load_scenario(path)


@pytest.mark.parametrize(
    ("right", "wrong", "line", "reason"),
    [
        ("size: tiny}", "size: tny}", 12, "tny is none of tiny; did you mean tiny"),
        ("mlp, dataset: cifar10, size", "mlp, dataset: imdb, size", 12, "the catalogue has no mlp on imdb"),
        ("hours: [0.1, 0.2]", "hours: [0.2, 0.1]", 9, "hours: 0.2 is more than 0.1"),
        ("gpus: [1, 2]", "gpus: [4, 2]", 9, "gpus: 4 is more than 2"),
        ("longest_h: 5", "longest_h: 0", 7, "longest_h"),
    ],
)
def test_a_fault_of_a_mix_is_named_by_its_line(
    tmp_path: Path, right: str, wrong: str, line: int, reason: str
) -> None:
    path = written(tmp_path, (OWN + MIX).replace(right, wrong))
    with pytest.raises(InvalidFile, match=reason) as refused:
        read_catalogue(path)
    assert refused.value.line == line
