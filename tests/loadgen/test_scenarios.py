"""Scenarios: all that ship make sense; a fault in a user's own is named by file, line and field."""

from collections import Counter
from pathlib import Path

import msgspec
import pytest

from loadgen.catalogue.reference import reference_throughput
from loadgen.catalogue.specs import shipped
from loadgen.catalogue.timing import fits
from loadgen.scenarios import arrivals, cluster_names, cluster_of, load_cluster, load_scenario, scenario_names
from schemas.settings import Settings
from shared.domain.cluster import gpus_by_type, nodes_of, satisfiable
from shared.domain.demand import job_spec
from shared.runtime.files import InvalidFile

OWN = """\
name: own
cluster: tiny
workload:
  arrivals: poisson
  count: 3
  rate_per_hour: 1
  mix: short
settings:
  round_s: 60
"""

LAB = """\
name: lab
gpu_types:
  v100: {link_bandwidth: 1e9, network_bandwidth: 1e9}
nodes:
  - {prefix: n, count: 2, gpus: 1, gpu_type: v100}
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "own.yaml"
    path.write_text(text)
    return path


JPS = tuple(f"jps-{gpus}" for gpus in (15, 30, 50, 100, 200, 300))


def gpu_hours(name: str, seed: int | None = None) -> float:
    scenario = load_scenario(name)
    cluster = cluster_of(scenario)
    jobs = [job_spec(arrival.job) for arrival in arrivals(scenario, seed)]
    known = shipped()
    rates = [reference_throughput(known.model_of(job.workload), cluster, known) for job in jobs]
    return sum(job.samples / rate for job, rate in zip(jobs, rates, strict=True)) / 3600


def test_the_scenarios_of_the_papers_are_shipped() -> None:
    assert {"hops-64", "hops-512", "tiny", "hadar-60", "hadar-60-uniform", *JPS} <= set(scenario_names())
    shipped_clusters = {"hops-64", "hops-512", "hops-1000", "hops-1500", "hops-2048", "hadar-60", *JPS}
    assert shipped_clusters <= set(cluster_names())


@pytest.mark.parametrize("name", JPS)
def test_scenarios_of_jps_differ_in_their_gpus_alone(name: str) -> None:
    """Table III: four jobs, any number of GPUs that leaves one for each of the others."""
    scenario, gpus = load_scenario(name), int(name.removeprefix("jps-"))
    jobs = [job_spec(arrival.job) for arrival in arrivals(scenario)]
    types = gpus_by_type(nodes_of(cluster_of(scenario)))

    assert [job.samples for job in jobs] == [1e7, 2e7, 1e7, 5e6]
    assert {job.demand for job in jobs} == {tuple(range(1, gpus - 2))}
    assert max(types.values()) - min(types.values()) <= 5
    assert {node.gpus for node in nodes_of(cluster_of(scenario))} == {5}
    assert scenario.catalogue == load_scenario("jps-15").catalogue
    speeds = {(one.model, one.dataset): set(one.rates) for one in scenario.catalogue.speeds}
    assert all(speeds[job.workload.model, job.workload.dataset] == set(types) for job in jobs)


@pytest.mark.parametrize("name", scenario_names())
def test_every_shipped_scenario_gives_jobs_that_its_cluster_can_run(name: str) -> None:
    scenario = load_scenario(name)
    nodes = nodes_of(cluster_of(scenario))
    jobs = arrivals(scenario)

    assert scenario.name == name
    assert jobs == arrivals(scenario)
    assert all(satisfiable(job_spec(job.job).demand, (), gpus_by_type(nodes)) for job in jobs)
    msgspec.convert(scenario.settings, Settings)


NAMELESS = {"tiny": 12, "hadare-aws": 5, "hadare-lab": 5}
"""GPUs of clusters whose name does not say them"""


@pytest.mark.parametrize("name", cluster_names())
def test_every_shipped_cluster_has_the_gpus_its_name_says(name: str) -> None:
    cluster = load_cluster(name)
    total = sum(gpus_by_type(nodes_of(cluster)).values())

    assert cluster.name == name
    assert total == (NAMELESS[name] if name in NAMELESS else int(name.split("-")[1]))


def test_hadare_has_one_gpu_a_node_and_twelve_jobs_that_run_on_all_of_them() -> None:
    for name, types in (("hadare-aws", 3), ("hadare-lab", 5)):
        scenario = load_scenario(name)
        nodes = nodes_of(cluster_of(scenario))
        assert [node.gpus for node in nodes] == [1] * 5
        assert len(gpus_by_type(nodes)) == types
        assert len(arrivals(scenario)) == 12
        known = shipped()
        for arrival in arrivals(scenario):
            workload = arrival.job.workload
            model = known.model_of(workload)
            assert all(fits(model, known.gpu_of(node.gpu_type), workload.batch_size) for node in nodes)


def test_hops_64_is_as_the_paper_describes_it() -> None:
    scenario = load_scenario("hops-64")
    jobs = arrivals(scenario)
    cluster = gpus_by_type(nodes_of(cluster_of(scenario)))

    assert cluster == {"gtx-1080-ti": 16, "rtx-3090": 16, "titan-xp": 32}
    assert len(jobs) == 25
    assert 2 < jobs[-1].at_s / 3600 < 3
    assert gpu_hours("hops-64") / 25 <= 24


def test_hops_512_has_the_papers_five_types() -> None:
    """Section 4.3: unlike servers with RTX 3090 are unlike types."""
    assert gpus_by_type(nodes_of(load_cluster("hops-512"))) == {
        "gtx-1080-ti": 128,
        "titan-xp": 128,
        "rtx-3090": 128,
        "rtx-3090-yk8100": 64,
        "rtx-3090-yk8100-10g": 64,
    }


def test_on_three_types_it_is_the_same_servers_and_the_same_jobs() -> None:
    five, three = (load_scenario(name) for name in ("hops-512", "hops-512-three"))
    whole, merged = (nodes_of(cluster_of(scenario)) for scenario in (five, three))
    assert set(gpus_by_type(merged)) == {"gtx-1080-ti", "titan-xp", "rtx-3090"}
    as_one = [msgspec.structs.replace(node, gpu_type=merged[at].gpu_type) for at, node in enumerate(whole)]
    assert as_one == list(merged)
    assert arrivals(five) == arrivals(three)


def test_hops_512_stays_below_the_work_that_the_papers_makespan_bounds() -> None:
    assert len(arrivals(load_scenario("hops-512"))) == 500
    assert gpu_hours("hops-512") / 500 <= 10.7


@pytest.mark.parametrize("seed", range(1, 6))
def test_hadar_60_has_sizes_that_the_paper_s_40_hours_have_room_for(seed: int) -> None:
    """480 jobs on 60 GPUs: 5 GPU-hours a job; classes drawn uniformly have five times that."""
    drawn = arrivals(load_scenario("hadar-60"), seed)
    assert len(drawn) == 480
    assert {job.at_s for job in drawn} == {0.0}
    models = Counter(job.job.workload.model for job in drawn)
    assert models["resnet18"] == pytest.approx(0.78 * 480, abs=30)
    assert all(job.job.gpus == [1] for job in drawn if job.job.workload.model == "cyclegan")
    assert 2.0 < gpu_hours("hadar-60", seed) / 480 < 5.0
    assert gpu_hours("hadar-60-uniform", seed) / 480 > 20.0


def test_hours_that_end_before_they_begin_are_a_fault(tmp_path: Path) -> None:
    traced = "trace\n  hours: [9, 3]"
    text = OWN.replace("poisson", traced).replace("count: 3", "path: jobs.csv")
    text = text.replace("  rate_per_hour: 1\n", "")
    with pytest.raises(InvalidFile, match=r"own\.yaml:5: \$\.workload\.hours: the first hour is not before"):
        load_scenario(written(tmp_path, text))


def test_the_callers_seed_wins_over_the_workloads() -> None:
    scenario = load_scenario("tiny")

    assert arrivals(scenario, seed=1) == arrivals(scenario)
    assert arrivals(scenario, seed=2) != arrivals(scenario)


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_below_0_or_too_long_to_store_is_a_fault(tmp_path: Path, seed: int) -> None:
    with pytest.raises(InvalidFile, match=r"own\.yaml:8: \$\.workload\.seed: .*0"):
        load_scenario(written(tmp_path, OWN.replace("  mix: short\n", f"  mix: short\n  seed: {seed}\n")))


def test_arrivals_that_a_simulation_would_never_come_to_are_a_fault(tmp_path: Path) -> None:
    slow = OWN.replace("rate_per_hour: 1\n", "rate_per_hour: 1.0e-12\n")
    with pytest.raises(
        InvalidFile, match=r"own: .*rate_per_hour: at 1e-12 jobs an hour the last of 3 arrives after"
    ):
        arrivals(load_scenario(written(tmp_path, slow)))


def test_a_scenario_of_ones_own_is_read_from_its_path(tmp_path: Path) -> None:
    assert len(arrivals(load_scenario(written(tmp_path, OWN)))) == 3


def test_a_trace_is_looked_for_beside_its_scenario(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("job_id,submission_time,duration,num_gpu\na,5,600,2\n")
    text = (
        OWN.replace("poisson", "trace")
        .replace("count: 3", "path: jobs.csv")
        .replace("  rate_per_hour: 1\n", "")
    )

    assert len(arrivals(load_scenario(written(tmp_path, text)))) == 1
    both = text.replace("path: jobs.csv", "path: jobs.csv\n  format: gavel\n  columns: {submit: a, gpus: b}")
    with pytest.raises(InvalidFile, match=r"own\.yaml:6: \$\.workload\.format: has no effect"):
        load_scenario(written(tmp_path, both))


@pytest.mark.parametrize(
    ("old", "new", "line", "field"),
    [
        ("cluster: tiny", "cluster: vast", 2, "$.cluster"),
        ("count: 3", "count: 0", 5, "$.workload.count"),
        ("rate_per_hour", "rate_per_day", 6, "$.workload.rate_per_day"),
        ("  mix: short\n", "", 4, "$.workload.mix"),
        ("mix: short", "mix: nonesuch", 7, "$.workload.mix"),
        ("round_s", "round", 9, "$.settings.round"),
        ("round_s: 60", "round_s: -1", 9, "$.settings.round_s"),
        ("round_s: 60", "leave_s: soon", 9, "$.settings.leave_s"),
        ("mix: short", "mix: short\n  gpu_hours_mean: 0.01", 8, "$.workload.gpu_hours_mean"),
        ("mix: short", "mix: short\n  gpu_hours_mean: 5000", 8, "$.workload.gpu_hours_mean"),
        ("round_s: 60", "seed: 3", 9, "$.settings.seed"),
        ("cluster: tiny", "name: twice", 2, None),
        ("cluster: tiny", "cluster: [tiny", 3, None),
    ],
)
def test_a_fault_is_named_by_line_and_field(
    tmp_path: Path, old: str, new: str, line: int, field: str | None
) -> None:
    path = written(tmp_path, OWN.replace(old, new))
    with pytest.raises(InvalidFile) as refused:
        load_scenario(path)

    assert (refused.value.path, refused.value.line, refused.value.field) == (str(path), line, field)


def test_a_mean_that_no_mix_of_jobs_reaches_is_refused_with_the_range(tmp_path: Path) -> None:
    text = OWN.replace("mix: short", "mix: hops-table-2\n  gpu_hours_mean: 5000")
    with pytest.raises(
        InvalidFile, match=r"hops-table-2 have 6\.\d+ to 2\d\.\d GPU-hours in the mean, not 5000"
    ):
        load_scenario(written(tmp_path, text))


def test_a_scenario_of_an_earlier_version_has_its_settings_under_their_present_names(tmp_path: Path) -> None:
    former = "round_s: 60\n  leave_s: 30\n  opening_grace_real_s: 3\n  round_opening_timeout_real_s: 4"
    scenario = load_scenario(written(tmp_path, OWN.replace("round_s: 60", former)))
    assert scenario.settings == {
        "round_s": 60,
        "leave_before_end_s": 30,
        "round_opening_timeout_real_s": 4,
    }


def test_an_unknown_name_is_refused_with_the_shipped_ones() -> None:
    with pytest.raises(InvalidFile, match="neither a file nor one of hadar-60"):
        load_scenario("nonesuch")
    with pytest.raises(InvalidFile, match="neither a file nor one of hadar-60"):
        load_cluster("nonesuch")


def test_a_scenario_may_name_the_file_of_its_cluster_relative_to_its_own(tmp_path: Path) -> None:
    (tmp_path / "lab.yaml").write_text(LAB)
    scenario = load_scenario(written(tmp_path, OWN.replace("tiny", "lab.yaml")))

    assert scenario.cluster == load_cluster(tmp_path / "lab.yaml")
    assert {node.node_id for node in nodes_of(cluster_of(scenario))} == {"n-0", "n-1"}
    with pytest.raises(InvalidFile, match=r"own\.yaml:2: \$\.cluster: neither a file nor one of hadar-60"):
        load_scenario(written(tmp_path, OWN.replace("tiny", "nonesuch.yaml")))
    (tmp_path / "lab.yaml").write_text(LAB.replace("count: 2", "cuont: 2"))
    with pytest.raises(InvalidFile, match=r"lab\.yaml:5: \$\.nodes\[0\]\.cuont"):
        load_scenario(written(tmp_path, OWN.replace("tiny", "lab.yaml")))


def test_nodes_of_a_type_that_is_not_described_are_a_fault_of_the_cluster(tmp_path: Path) -> None:
    text = """\
name: own
gpu_types:
  v100: {link_bandwidth: 1e9, network_bandwidth: 1e9}
nodes:
  - {prefix: n, count: 1, gpus: 1, gpu_type: p100}
"""
    with pytest.raises(InvalidFile, match=r"own\.yaml:5: \$\.nodes: .*p100 is not described"):
        load_cluster(written(tmp_path, text))


def test_a_bandwidth_that_moves_next_to_nothing_is_a_fault(tmp_path: Path) -> None:
    """A gradient would take more seconds than a float holds."""
    text = """\
name: own
gpu_types:
  v100: {link_bandwidth: 1e-308, network_bandwidth: 1e9}
nodes:
  - {prefix: n, count: 1, gpus: 1, gpu_type: v100}
"""
    with pytest.raises(InvalidFile, match=r"own\.yaml:3: .*v100.*link_bandwidth.*1"):
        load_cluster(written(tmp_path, text))


def test_a_listed_job_that_makes_no_sense_is_named(tmp_path: Path) -> None:
    text = """\
name: own
cluster: tiny
workload:
  arrivals: listed
  jobs:
    - at_s: 0
      job:
        name: endless
        workload: {model: vit-b16, dataset: food-101, batch_size: 48}
        gpus: 1
"""
    with pytest.raises(
        InvalidFile, match=r"own\.yaml:8: \$\.workload\.jobs\[0\]\.job\.samples: say how long"
    ):
        load_scenario(written(tmp_path, text))
