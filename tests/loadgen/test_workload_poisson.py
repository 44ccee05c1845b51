"""Drawn workloads: rate, sizes, demands, and the same draw for the same seed."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.scenarios import load_cluster
from loadgen.workloads.jobs import ReferenceCache
from loadgen.workloads.mixes import UnknownMix, mix_named
from loadgen.workloads.poisson import poisson_arrivals
from loadgen.workloads.sizes import gpu_hours
from schemas.scenarios import Arrival, PoissonWorkload
from shared.domain.demand import job_spec

CLUSTER = load_cluster("hops-64")
MIX = mix_named("hops-table-2")


def drawn(count: int = 200, rate: float = 100.0, mean: float | None = None, seed: int = 1) -> list[Arrival]:
    workload = PoissonWorkload(count=count, rate_per_hour=rate, mix="hops-table-2", gpu_hours_mean=mean)
    return poisson_arrivals(workload, CLUSTER, seed)


def hours(arrival: Arrival) -> float:
    entry = MIX.entry(arrival.job.workload.model, arrival.job.workload.dataset)
    assert entry is not None
    assert arrival.job.samples is not None
    reference = ReferenceCache(CLUSTER)
    return arrival.job.samples / reference.rate(reference.spec(entry)) / 3600


def test_arrivals_come_at_the_rate_asked_for_and_in_order() -> None:
    times = [arrival.at_s for arrival in drawn(count=2000, rate=60)]
    gaps = np.diff(times)

    assert times == sorted(times)
    assert gaps.mean() == pytest.approx(60, rel=0.07)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.1)


def test_the_same_seed_draws_the_same_jobs_and_another_does_not() -> None:
    assert drawn(seed=3) == drawn(seed=3)
    assert drawn(seed=3) != drawn(seed=4)


@given(seed=st.integers(0, 1000), mean=st.none() | st.floats(2, 40))
@settings(max_examples=20, deadline=None)
def test_sizes_and_demands_stay_inside_their_class(seed: int, mean: float | None) -> None:
    for arrival in drawn(count=30, mean=mean, seed=seed):
        entry = MIX.entry(arrival.job.workload.model, arrival.job.workload.dataset)
        assert entry is not None
        size, demand = MIX.size_of(entry), job_spec(arrival.job).demand
        assert size.hours[0] * 0.999 <= hours(arrival) <= size.hours[1] * 1.001
        assert size.gpus[0] <= demand[0] <= demand[-1] <= size.gpus[1]
        assert size.choices[0] - 1 <= len(demand) <= size.choices[1]
        assert hours(arrival) / demand[-1] <= MIX.longest_h * 1.001


@pytest.mark.parametrize("mean", [9.0, 12.0, 16.0])
def test_the_mean_size_is_the_one_asked_for_where_the_classes_allow(mean: float) -> None:
    assert np.mean([hours(arrival) for arrival in drawn(mean=mean)]) == pytest.approx(mean, rel=0.01)


def test_a_mean_out_of_reach_gets_the_nearest_the_classes_allow() -> None:
    classes = [MIX.sizes["s"], MIX.sizes["xl"]]
    sizes = gpu_hours(classes, np.array([0.5, 0.5]), mean=1.0)

    assert sizes == pytest.approx([0.1, 50.0], rel=0.01)


def test_every_model_comes_as_often_as_its_weight_says() -> None:
    counts = Counter((a.job.workload.model, a.job.workload.dataset) for a in drawn(count=400))

    assert len(counts) == len(MIX.jobs)
    assert all(
        counts[entry.model, entry.dataset] == pytest.approx(20 * entry.weight, abs=1) for entry in MIX.jobs
    )


def test_no_job_asks_for_more_gpus_than_any_type_that_holds_it_has() -> None:
    tiny = load_cluster("tiny")
    workload = PoissonWorkload(count=60, rate_per_hour=10, mix="hops-table-2")

    assert max(max(job_spec(a.job).demand) for a in poisson_arrivals(workload, tiny, 1)) <= 8


def test_an_unknown_mix_is_answered_with_the_known_ones() -> None:
    workload = PoissonWorkload(count=1, rate_per_hour=1, mix="nonesuch")
    with pytest.raises(UnknownMix, match="nonesuch; there are hadar-table-2"):
        poisson_arrivals(workload, CLUSTER, 1)
