"""The bounds: exact where the best is known, and below every schedule that anybody comes up with."""

from itertools import permutations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopyard.lab.report.headroom import NOISE
from hopyard.lab.runs.bounding import bounded
from hopyard.lab.runs.bounds import OFFERS_AT_MOST, Offer, Unsolved, Work, efficient, makespan_s, mean_jct_s
from hopyard.lab.runs.cases import BOUND, Case, bounding_of, with_bounds
from hopyard.lab.runs.trials import Bounding, Overrides, Simulation
from loadgen.scenarios import arrivals, cluster_of, load_scenario
from loadgen.simulation import simulate, virtual_settings
from loadgen.world.fastest import Fastest
from schemas.ids import NodeId
from schemas.placement import Gang
from schemas.scenarios import ScenarioFile
from shared.domain.cluster import nodes_of
from shared.domain.demand import job_spec
from shared.runtime.plugins import WORLDS
from tests.hopyard.lab.experiment_builders import small, trial

CLOSE = 1e-5
"""relative: what the solver's tolerances leave"""


def work(*offers: tuple[int, int, float], at: float = 0.0) -> Work:
    return Work(at, tuple(Offer(*offer) for offer in offers))


def test_a_job_alone_takes_its_shortest_run() -> None:
    alone = [work((0, 1, 100.0), (0, 2, 60.0), (1, 1, 80.0), at=30.0)]
    assert makespan_s(alone, [4, 4]) == pytest.approx(60.0, rel=CLOSE)
    assert mean_jct_s(alone, [4, 4]) == pytest.approx(60.0, rel=CLOSE)


def test_equal_jobs_fill_the_gpus() -> None:
    """Six jobs of 100 s on two GPUs: 300 s, whatever the order."""
    assert makespan_s([work((0, 1, 100.0))] * 6, [2]) == pytest.approx(300.0, rel=CLOSE)


def test_the_makespan_is_at_least_the_last_arrival_plus_its_run() -> None:
    jobs = [work((0, 1, 100.0)), work((0, 1, 50.0), at=1000.0)]
    assert makespan_s(jobs, [1]) == pytest.approx(1050.0, rel=CLOSE)


def test_gpus_of_two_types_are_shared_by_time() -> None:
    """Two jobs, each three times as fast on the one GPU of type 0: they share both, and need 75 s each."""
    jobs = [work((0, 1, 50.0), (1, 1, 150.0))] * 2
    assert makespan_s(jobs, [1, 1]) == pytest.approx(75.0, rel=CLOSE)


def test_a_job_has_one_place_at_a_time() -> None:
    """Two halves side by side would take 50 s."""
    assert makespan_s([work((0, 1, 100.0))], [2]) == pytest.approx(100.0, rel=CLOSE)


def test_the_mean_jct_counts_the_queue() -> None:
    """Ten jobs of 100 s on one GPU: (100 + … + 1000) / 10 = 550; the intervals let through a little."""
    found = mean_jct_s([work((0, 1, 100.0))] * 10, [1])
    assert 0.9 * 550 <= found <= 550 * (1 + CLOSE)


def test_offers_that_others_beat_in_turns_are_left_out() -> None:
    two, three, eight = Offer(0, 2, 50.0), Offer(0, 3, 49.9), Offer(0, 8, 20.0)
    single, worse = Offer(0, 1, 100.0), Offer(0, 4, 60.0)
    assert efficient((eight, three, worse, two, single)) == (two, eight)
    assert efficient((single, Offer(1, 1, 300.0))) == (single, Offer(1, 1, 300.0))


def test_more_places_than_the_program_takes_are_refused() -> None:
    with pytest.raises(Unsolved, match="too many"):
        makespan_s([work((0, 1, 100.0))] * (OFFERS_AT_MOST + 1), [1])


def in_order(works: list[Work], stock: list[int], chosen: list[int]) -> tuple[float, float]:
    """Makespan and mean JCT of a list schedule: each job takes one offer, on the GPUs that are free first."""
    free = [[0.0] * gpus for gpus in stock]
    ends = []
    for one, index in zip(works, chosen, strict=True):
        offer = one.offers[index % len(one.offers)]
        gpus = sorted(free[offer.kind])
        end = max(gpus[offer.gpus - 1], one.arrives_at) + offer.seconds
        free[offer.kind] = [end] * offer.gpus + gpus[offer.gpus :]
        ends.append(end)
    first = min(one.arrives_at for one in works)
    jcts = [end - one.arrives_at for end, one in zip(ends, works, strict=True)]
    return max(ends) - first, sum(jcts) / len(jcts)


OFFERS = st.builds(Offer, st.integers(0, 1), st.integers(1, 2), st.floats(1.0, 500.0))
WORKS = st.builds(Work, st.floats(0.0, 300.0), st.lists(OFFERS, min_size=1, max_size=4).map(tuple))


@settings(max_examples=60, deadline=None)
@given(st.lists(WORKS, min_size=1, max_size=4), st.lists(st.integers(0, 3), min_size=4, max_size=4))
def test_no_list_schedule_is_better(works: list[Work], choices: list[int]) -> None:
    stock = [2, 3]
    least, shortest = makespan_s(works, stock), mean_jct_s(works, stock)
    for order in permutations(works):
        makespan, jct = in_order(list(order), stock, choices[: len(works)])
        assert least <= makespan * (1 + CLOSE)
        assert shortest <= jct * (1 + CLOSE)


@pytest.mark.parametrize("policy", ["hops", "sia", "fifo-skipping", "srtf"])
def test_no_policy_is_better(policy: str) -> None:
    scenario = load_scenario("tiny")
    bound = bounded(Bounding(scenario=scenario, seed=1))
    metrics = simulate(scenario, policy=policy, seed=1).result.metrics
    assert bound.makespan_s is not None
    assert bound.jct_s_mean is not None
    assert bound.makespan_s < (metrics["makespan_s"] or 0.0)
    assert bound.jct_s_mean < (metrics["jct_s_mean"] or 0.0)


def test_no_gang_is_faster_than_the_fastest() -> None:
    """All pairs of nodes of a type, in the mean of the noise."""
    scenario = load_scenario("hops-64")
    chosen = virtual_settings(scenario, {"seed": 3})
    world = WORLDS.load(chosen.world)(chosen, scenario.catalogue)
    nodes = nodes_of(cluster_of(scenario))
    spec = next(spec for arrival in arrivals(scenario, 3) if 4 in (spec := job_spec(arrival.job)).demand)
    fastest = {(one.gpu_type, one.gpus): one.rate for one in Fastest(world, nodes).places(spec)}
    for first in nodes:
        for other in (node for node in nodes if node.gpu_type == first.gpu_type and node != first):
            pair = sorted((first, other), key=lambda node: node.node_id)
            gang = Gang.of({NodeId(node.node_id): 2 for node in pair})
            rates = [world.stretch(spec, pair, gang, key="x", index=i).throughput for i in range(4)]
            assert sum(rates) / 4 <= fastest[first.gpu_type, 4] * 1.05


def test_jobs_that_fit_nowhere_are_counted() -> None:
    scenario = small()
    assert bounded(Bounding(scenario=scenario, seed=1)).left_out == 0


def test_every_seed_has_one_bound() -> None:
    cases = [Case(group="all", arm=arm, trial=trial(arm, seed)) for arm in ("fifo", "sia") for seed in (1, 2)]
    added = [case for case in with_bounds(cases) if case.arm == BOUND]
    assert [(case.group, case.seed) for case in added] == [("all", 1), ("all", 2)]


def test_arms_of_other_worlds_have_bounds_of_their_own() -> None:
    arms: dict[str, Overrides] = {
        "fifo": {},
        "patient": {"round_s": 720.0},
        "strained": {"world_structure": "harsh"},
    }
    runs = [
        Simulation(scenario=small(), policy="fifo", seed=1, overrides=overrides)
        for overrides in arms.values()
    ]
    cases = [Case(group="all", arm=arm, trial=run) for arm, run in zip(arms, runs, strict=True)]
    added = [case.trial for case in with_bounds(cases) if case.arm == BOUND]
    assert [bounding_of(run) for run in runs] == [added[0], added[0], added[1]]


@pytest.mark.parametrize("policy", ["optimus", "exhaustive", "has"])
def test_no_gang_over_two_types_is_better(policy: str) -> None:
    """The only gang of more than one GPU is larger than the stock of either type."""
    scenario = msgspec.convert(TWO_TYPES, ScenarioFile)
    bound = bounded(Bounding(scenario=scenario, seed=1))
    result = simulate(scenario, policy=policy, seed=1).result
    assert len(result.job_results[0].nodes) == 2
    assert bound.makespan_s is not None
    assert bound.makespan_s < (result.metrics["makespan_s"] or 0.0)


def on_v100(
    jobs: list[tuple[str, str, str, int, float]],
    sizes: tuple[int, ...],
    link_bandwidth: float = 20e9,
    speeds: tuple[dict[str, object], ...] = (),
    **settings: str,
) -> ScenarioFile:
    """Jobs in the order of their arrival, (name, model, data set, GPUs, samples), and a node of each size."""
    nodes = [
        {"prefix": f"n{index}", "count": 1, "gpus": gpus, "gpu_type": "v100", "server": "aws-p3"}
        for index, gpus in enumerate(sizes)
    ]
    bandwidths = {"link_bandwidth": link_bandwidth, "network_bandwidth": 0.6e9}
    arriving = [
        {
            "at_s": index,
            "job": {
                "name": name,
                "workload": {"model": model, "dataset": dataset, "batch_size": 64},
                "gpus": gpus,
                "samples": samples,
            },
        }
        for index, (name, model, dataset, gpus, samples) in enumerate(jobs)
    ]
    written = {
        "name": "on-v100",
        "cluster": {"name": "on-v100", "gpu_types": {"v100": bandwidths}, "nodes": nodes},
        "workload": {"arrivals": "listed", "jobs": arriving},
        "settings": {"profile_at_once": True, "startup_s": 1.0, **settings},
        "catalogue": {"speeds": speeds},
    }
    return msgspec.convert(written, ScenarioFile)


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(
            on_v100([("one", "vgg19", "cifar10", 8, 1e8)], sizes=(4, 4, 4, 4, 4, 4, 8)),
            id="the only node with room for the gang has not the fastest GPUs",
        ),
        pytest.param(
            on_v100(
                [("short", "vgg11", "imagenet", 2, 256), ("long", "vgg11", "imagenet", 2, 1e7)],
                sizes=(1, 1),
                speeds=(
                    {"model": "vgg11", "dataset": "imagenet", "parameters": 11e6, "rates": {"v100": 644.0}},
                ),
                world="table",
            ),
            id="an exchange an epoch costs the short job more",
        ),
        pytest.param(
            on_v100(
                [("vgg-2", "vgg11", "imagenet", 2, 1000), ("vgg-4", "vgg11", "imagenet", 2, 6e6)],
                sizes=(2,),
                link_bandwidth=2e9,
                world_structure="buckets-by-job",
            ),
            id="the short job has larger buckets",
        ),
    ],
)
def test_no_run_is_below_its_bound(scenario: ScenarioFile) -> None:
    bound = bounded(Bounding(scenario=scenario, seed=1))
    metrics = simulate(scenario, policy="hops", seed=1).result.metrics
    assert bound.makespan_s is not None
    assert bound.jct_s_mean is not None
    assert bound.makespan_s < (metrics["makespan_s"] or 0.0) * (1 + NOISE)
    assert bound.jct_s_mean < (metrics["jct_s_mean"] or 0.0) * (1 + NOISE)


TWO_TYPES = {
    "name": "two-types",
    "cluster": {
        "name": "two-types",
        "gpu_types": {kind: {"link_bandwidth": 40e9, "network_bandwidth": 12e9} for kind in ("v100", "p100")},
        "nodes": [{"prefix": kind, "count": 1, "gpus": 4, "gpu_type": kind} for kind in ("v100", "p100")],
    },
    "workload": {
        "arrivals": "listed",
        "jobs": [
            {
                "at_s": 0,
                "job": {
                    "name": "big",
                    "workload": {"model": "resnet50", "dataset": "imagenet", "batch_size": 64},
                    "gpus": [1, 8],
                    "samples": 4e6,
                },
            }
        ],
    },
}
