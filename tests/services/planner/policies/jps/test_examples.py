"""The paper's examples, worked by hand, and its figures on the reconstructed speeds, to the digits given."""

from collections.abc import Sequence
from math import comb

import msgspec
import numpy as np
import pytest

from services.planner.policies.contract.view import View
from services.planner.policies.jps.completion import jain
from services.planner.policies.jps.packing import packing
from services.planner.policies.jps.scene import scene
from services.planner.policies.jps.speeds import speeds
from services.planner.policies.jps.splits.categories import Categories
from services.planner.policies.jps.splits.market import transported
from services.planner.policies.jps.splits.sampling import best, rear
from shared.domain.arrays import Floats, Ints
from tests.services.planner.planner_builders import view
from tests.services.planner.policies.jps.jps_builders import (
    by_type,
    faithful,
    printed,
    trains,
    unlike,
)

T4_V100 = {"resnet18": {"t4": 275.0, "v100": 644.0}, "vgg19": {"t4": 884.0, "v100": 1754.0}}


def two_jobs() -> View:
    """E2: ResNet-18 and VGG-19 on two T4 and two V100; exchanges take no time."""
    jobs = [trains(name, T4_V100[name], work, 4) for name, work in (("resnet18", 2e7), ("vgg19", 1e7))]
    return view(
        jobs, [unlike("t4-0", 2, "t4", unconnected=True), unlike("v100-0", 2, "v100", unconnected=True)]
    )


def three_jobs(order: Sequence[str] = "ABC") -> View:
    """E4: two V100, two P100, a T4."""
    rates = {"A": (6000.0, 4500.0, 3000.0), "B": (1754.0, 1250.0, 884.0), "C": (644.0, 420.0, 275.0)}
    work = {"A": 5e6, "B": 1e7, "C": 2e7}
    nodes = [
        unlike(f"{name}-0", gpus, name, unconnected=True)
        for name, gpus in (("p100", 2), ("t4", 1), ("v100", 2))
    ]
    types = ("v100", "p100", "t4")
    return view(
        [trains(name, dict(zip(types, rates[name], strict=True)), work[name], 5) for name in order], nodes
    )


class Looked:
    """Every category of a view: Λ by job, in the order of the policy, and F."""

    def __init__(self, seen: View, *, listed: Sequence[str] = ()) -> None:
        """`listed`: the order of jobs, where it is not the policy's."""
        found = scene(seen, static=False)
        if listed:
            names = [job.job_id for job in found.jobs]
            order = [names.index(one) for one in listed]  # type: ignore[arg-type]
            found = msgspec.structs.replace(
                found,
                jobs=tuple(found.jobs[one] for one in order),
                rate=found.rate[order],
                left=found.left[order],
            )
        self.scene = found
        self.speeds = speeds(found, law="epoch", equal=False, share_max=100.0)
        gpus = int(found.supply.sum())
        self.categories = Categories([range(1, gpus + 1)] * len(found.jobs), gpus)
        self.alone = np.array([self.speeds.isolated_s(job) for job in range(len(found.jobs))])
        splits = [self.split(number) for number in range(self.categories.count)]
        self.jct = np.array([self._jct(split) for split in splits])
        self.mean = self.jct.mean(axis=1)
        self.fairness = np.array([jain(row) for row in self.jct / self.alone])

    def split(self, number: int) -> Ints:
        found = transported(self.scene.market(), np.array(self.categories.at(number), dtype=np.int32))
        assert found is not None
        return found

    def left_alone(self) -> Floats:
        """T · Π / Σ ρ."""
        found: Floats = self.scene.left / (self.scene.rate @ self.scene.supply)
        return found

    def _jct(self, split: Ints) -> list[float]:
        places = packing(self.scene.nodes).places(split, [{}] * len(split))
        return [
            self.speeds.completion_s(job, self.speeds.gang(job, place), {})
            for job, place in enumerate(places)
        ]

    def expected_best(self, samples: int, last: int) -> float:
        """The mean over all draws of `samples` from the `last` categories, of the least mean Λ."""
        order = np.sort(self.mean[-last:])
        chance = [comb(last - 1 - rank, samples - 1) / comb(last, samples) for rank in range(last)]
        return float(order @ np.array(chance))

    def loss(self, samples: int, last: int) -> float:
        """The same in percent above the least of all categories."""
        return 100 * (self.expected_best(samples, last) / float(self.mean.min()) - 1)


# ---- E2


def test_two_jobs_category_by_category() -> None:
    found = Looked(two_jobs(), listed=("resnet18", "vgg19"))
    assert found.alone == pytest.approx([21_762.8, 3_790.8], abs=0.05)
    assert found.alone.mean() == pytest.approx(12_776.8, abs=0.05)
    assert found.jct == pytest.approx(
        np.array([[16_750.4, 5_701.3], [36_363.6, 2_850.6], [72_727.3, 2_276.9]]), abs=0.05
    )
    assert found.mean == pytest.approx([11_225.8, 19_607.1, 37_502.1], abs=0.05)
    assert found.fairness == pytest.approx([0.9055, 0.8742, 0.6741], abs=5e-5)
    score = 0.5 * found.mean.min() / found.mean + 0.5 * found.fairness
    assert score == pytest.approx([0.9528, 0.7234, 0.4867], abs=5e-5)


def test_two_jobs_are_sorted_by_their_time_on_all_gpus() -> None:
    found = scene(two_jobs(), static=False)
    assert [job.job_id for job in found.jobs] == ["vgg19", "resnet18"]
    assert found.left / (found.rate @ found.supply) == pytest.approx([1_895.4, 10_881.4], abs=0.05)


@pytest.mark.parametrize(
    ("policy", "options", "mean_s", "places"),
    [
        ("has", {}, 11_225.8, {"resnet18": {"t4": 2, "v100": 1}, "vgg19": {"v100": 1}}),
        ("exhaustive", {}, 10_592.0, {"resnet18": {"v100": 2}, "vgg19": {"t4": 2}}),
        (
            "optimus-aware",
            {"shares": "equal"},
            17_413.3,
            {"resnet18": {"v100": 1}, "vgg19": {"v100": 1, "t4": 2}},
        ),
        ("optimus-aware", {}, 11_225.8, {"resnet18": {"t4": 2, "v100": 1}, "vgg19": {"v100": 1}}),
    ],
)
def test_two_jobs_as_each_policy_has_them(
    policy: str, options: dict[str, str], mean_s: float, places: dict[str, dict[str, int]]
) -> None:
    decision = faithful(policy, two_jobs(), **options)
    assert decision.objective == pytest.approx(mean_s, abs=0.05)
    assert by_type(decision) == places


# ---- E4


def test_three_jobs_category_by_category() -> None:
    found = Looked(three_jobs())
    assert [job.job_id for job in found.scene.jobs] == ["A", "B", "C"]
    assert found.left_alone() == pytest.approx([208.3, 1_451.0, 8_322.9], abs=0.05)
    assert found.alone == pytest.approx([625.0, 4_352.9, 24_968.8], abs=0.05)
    assert found.mean == pytest.approx(
        [27_010.10, 25_714.65, 25_303.78, 12_397.88, 10_979.74, 8_157.27], abs=0.005
    )
    assert found.fairness == pytest.approx([0.7553, 0.6902, 0.7235, 0.8655, 0.9543, 0.9394], abs=5e-5)
    assert [best(found.mean, found.fairness, beta) + 1 for beta in (1.0, 0.5, 0.0)] == [6, 6, 5]
    score = 0.5 * found.mean.min() / found.mean + 0.5 * found.fairness
    assert score[[5, 4]] == pytest.approx([0.9697, 0.8486], abs=5e-5)


def test_three_jobs_as_each_policy_has_them() -> None:
    for policy in ("has", "jps"):
        decision = faithful(policy, three_jobs())
        assert decision.objective == pytest.approx(8_157.27, abs=0.005)
        assert by_type(decision) == {"A": {"v100": 1}, "B": {"v100": 1}, "C": {"p100": 2, "t4": 1}}
    assert rear(6, 0.7) == 1
    exact = faithful("exhaustive", three_jobs())
    assert exact.objective == pytest.approx(6_948.34, abs=0.005)
    assert by_type(exact) == {"A": {"t4": 1}, "B": {"v100": 1}, "C": {"v100": 1, "p100": 2}}
    for shares, mean_s in (("equal", 10_099.66), ("proportional", 8_157.27)):
        decision = faithful("optimus-aware", three_jobs(), shares=shares)
        assert decision.objective == pytest.approx(mean_s, abs=0.005)


# ---- E5 and the figures


@pytest.fixture(scope="module")
def small() -> Looked:
    return Looked(printed(5))


@pytest.fixture(scope="module")
def large() -> Looked:
    return Looked(printed(10))


def test_the_testbed_of_15(small: Looked) -> None:
    assert [job.job_id for job in small.scene.jobs] == ["alexnet", "vgg19", "resnet101", "resnet18"]
    assert small.left_alone() / 4 == pytest.approx([39.9, 140.2, 427.0, 754.7], abs=0.05)
    assert small.alone == pytest.approx([665.6, 2_373.8, 6_871.7, 12_086.1], abs=0.05)
    number = int(small.mean.argmin())
    assert number + 1 == 276
    assert small.categories.at(number) == (2, 2, 6, 5)
    assert small.jct[number] == pytest.approx([1_212.44, 2_853.61, 4_431.32, 7_300.18], abs=0.005)
    assert small.mean[number] == pytest.approx(3_949.39, abs=0.005)
    assert small.fairness[number] == pytest.approx(0.8232, abs=5e-5)


@pytest.mark.parametrize(("samples", "mean_s"), [(20, 4_073.72), (40, 4_002.40), (60, 3_972.81)])
def test_the_expected_best_of_a_sample_of_the_testbed(small: Looked, samples: int, mean_s: float) -> None:
    assert small.expected_best(samples, 109) == pytest.approx(mean_s, abs=0.005)


def test_the_best_alpha_for_40_samples_is_the_paper_s(small: Looked) -> None:
    rears = [rear(364, alpha / 10) for alpha in range(10)]
    expected = [small.expected_best(min(40, last), last) for last in rears]
    assert expected.index(min(expected)) == 7


def test_in_the_order_of_table_iii_numbers_are_the_paper_s() -> None:
    """Jobs as printed: ResNet-101, ResNet-18, VGG-19, AlexNet."""
    found = Looked(printed(5), listed=("resnet101", "resnet18", "vgg19", "alexnet"))
    assert found.mean.argmin() + 1 == 94
    assert found.mean[[94 - 1, 18 - 1, 159 - 1]] == pytest.approx([3_949.4, 4_047.1, 4_046.8], abs=0.05)
    assert found.fairness[94 - 1] == pytest.approx(0.823, abs=5e-4)


def test_fairness_and_samples_at_both_sizes(small: Looked, large: Looked) -> None:
    assert (small.fairness.min(), small.fairness.max()) == pytest.approx((0.525, 0.995), abs=5e-4)
    assert (large.fairness.min(), large.fairness.max()) == pytest.approx((0.389, 0.999), abs=5e-4)
    assert large.mean.min() == pytest.approx(1_975.5, abs=0.05)
    for found, count, front in ((small, 364, 7.68), (large, 3654, 10.41)):
        assert found.categories.count == count
        assert 100 * (found.expected_best(20, count) / found.mean.min() - 1) == pytest.approx(
            front, abs=0.005
        )
    for found, samples, loss in ((small, 20, 3.15), (small, 60, 0.59), (large, 20, 5.29), (large, 60, 2.00)):
        last = rear(found.categories.count, 0.7)
        assert 100 * (found.expected_best(samples, last) / found.mean.min() - 1) == pytest.approx(
            loss, abs=0.005
        )
