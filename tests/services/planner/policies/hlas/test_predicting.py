"""How long jobs are predicted to run, and what HLAS-P makes of it."""

import math

import msgspec
import numpy as np
import pytest

from loadgen.world.losses import fit
from schemas.ids import Fingerprint, JobId
from schemas.placement import Gang
from services.planner.policies.contract.decision import Decision
from services.planner.policies.contract.view import ViewJob
from services.planner.policies.hlas.memory import (
    ENDED_AT_MOST,
    HlasMemory,
    RememberedJob,
    remembered,
    with_ended,
)
from services.planner.policies.hlas.predicting import JobSoFar, conservative, entire, history, named, none
from services.planner.policies.hlas.queues import QueuePlace, yardstick
from services.planner.policies.registry import Registry
from tests.services.planner.planner_builders import decide, silent, view
from tests.services.planner.policies.hlas.hlas_builders import Toy, placed, single, toy

ALPHA = 10


def so_far(rounds: int, *ended: float, name: str = "x", whole: int = 100) -> JobSoFar:
    return JobSoFar(job=toy(name, Toy((1.0,), 1, whole)), rounds=rounds, round_samples=1.0, ended=ended)


def says(rounds: float | None) -> object:
    return lambda _: rounds


# ---- one prediction


@pytest.mark.parametrize(
    ("fitted", "ended", "expected"),
    [
        (9.0, (50.0,), 0),  # not so many rounds more
        (10.0, (), ALPHA),
        (99.0, (), ALPHA),  # conservative: no more than that
        (99.0, (25.0, 45.0), 20),  # (10 + (20 + 40) / 2) / 2
        (99.0, (3.0,), 5),  # shorter than this one is already
        (None, (25.0,), 15),  # too few losses: history alone
        (None, (), 0),
    ],
)
def test_the_conservative_prediction(fitted: float | None, ended: tuple[float, ...], expected: int) -> None:
    assert conservative(so_far(5, *ended), says(fitted), ALPHA) == expected  # type: ignore[arg-type]


def test_history_alone_is_no_fit() -> None:
    assert history(so_far(5, 25.0, 45.0, 1.0)) == pytest.approx(20.0)
    assert history(so_far(5)) is None
    assert conservative(so_far(5, 7.0), history, ALPHA) == 6  # though 2 are fewer than α
    assert conservative(so_far(5), history, ALPHA) == 0
    assert conservative(so_far(5, 25.0), none, ALPHA) == 0


def test_hlas_l_takes_all_that_the_fit_leaves() -> None:
    assert entire(so_far(5, 1.0), says(41.7)) == 42  # type: ignore[arg-type]
    assert entire(so_far(5, 1.0), says(None)) == 0  # type: ignore[arg-type]


def test_predictors_are_found_by_name() -> None:
    assert named("none") is none
    assert named("history") is history
    assert named("fit") is fit


# ---- the emulated fit


def test_a_fit_needs_five_losses_and_gets_better_with_more() -> None:
    assert fit(so_far(4)) is None
    ratios = {}
    for rounds in (5, 50, 5000):
        found = [fit(so_far(rounds, name=f"job-{each}", whole=10_000)) for each in range(400)]
        ratios[rounds] = np.log([(each or 0.0) / (10_000 - rounds) for each in found])
    for rounds, sigma in ((5, 1 / math.sqrt(1.1)), (50, 1 / math.sqrt(2)), (5000, 1 / math.sqrt(101))):
        assert np.std(ratios[rounds]) == pytest.approx(sigma, rel=0.1)
        assert abs(np.mean(ratios[rounds])) < 3 * sigma / math.sqrt(400)


def test_the_error_of_a_job_is_its_own() -> None:
    assert fit(so_far(50)) == fit(so_far(50))
    assert fit(so_far(50)) != fit(so_far(50, name="y"))
    assert fit(so_far(200, whole=100)) == 0.0


# ---- where it leads


def test_a_job_keeps_its_queue_while_its_predicted_rounds_run() -> None:
    yard, thresholds = yardstick(1.0, 1.0, 1), (2.0, 4.0, 8.0)
    place = QueuePlace().foreseeing(0, 3)
    seen = []
    for rounds in range(6):
        place = place.sized(rounds, yard, thresholds, float(rounds))
        seen.append((place.queue, place.further(rounds), place.is_to_be_asked(rounds)))
    assert seen == [
        (1, 3, False),
        (1, 2, False),
        (1, 1, False),
        (1, 0, True),
        (2, 0, True),
        (2, 0, True),
    ]
    assert place.entered_at == 4.0


def test_larger_predictions_come_first_in_a_queue_and_before_none() -> None:
    places = {
        "none": QueuePlace(1, 1.0),
        "late": QueuePlace(1, 2.0),
        "two": QueuePlace(1, 9.0, until=7),
        "six": QueuePlace(1, 9.0, until=11),
        "first": QueuePlace(0, 20.0),
    }
    assert sorted(places, key=lambda name: places[name].urgency(5)) == ["first", "six", "two", "none", "late"]


# ---- the policy

ONE = [single(0)]
UNITS = " ".join(map(str, range(10, 120, 10)))


def of(jobs: list[ViewJob], before: Decision | None, at: float, policy: str = "hlas-p") -> Decision:
    seen = view(jobs, ONE, at=at)
    memory = b"" if before is None else before.memory
    return decide(policy, msgspec.structs.replace(seen, memory=memory), silent, hlas_thresholds=UNITS)


def alike(name: str, done: float = 0.0) -> ViewJob:
    return toy(name, Toy((10.0,), 1, 1000), done, workload=Fingerprint("same"))


def test_the_rounds_of_a_workload_s_first_job_predict_the_next_one() -> None:
    """It ran 7 rounds of 10 s; α is 1, so the next is expected to run 4 and begins in the fifth queue."""
    first = of([alike("a")], None, 100.0)
    ran = placed(alike("a", 5.0), first.choices[0].gang, 0.1)
    second = of([ran], first, 150.0)
    third = of([alike("b")], second, 170.0)
    assert remembered(third.memory).ended == {Fingerprint("same"): pytest.approx((7.0,))}
    assert third.standings[JobId("b")].priority == 5.0
    assert third.again_at == pytest.approx(170.0 + 40.0)


def test_of_fig_12_with_three_rounds_predicted() -> None:
    """Jobs of 2, 3 and 4 rounds on one GPU; of the third kind one of 5 rounds has ended, and α is 1."""
    jobs = {str(rounds - 1): Toy((10.0,), 1, rounds) for rounds in (2, 3, 4)}
    memory = msgspec.msgpack.encode(HlasMemory(ended={Fingerprint("3"): (5.0,)}))
    done, now, order = dict.fromkeys(jobs, 0.0), 0.0, ""
    places: dict[str, Gang] = {}
    while jobs:
        rows = [toy(name, one, done[name]) for name, one in jobs.items()]
        rows = [placed(row, places[row.job_id], 0.1) if row.job_id in places else row for row in rows]
        seen = msgspec.structs.replace(view(rows, ONE, at=now), memory=memory)
        decision = decide("hlas-p", seen, silent, hlas_thresholds=UNITS)
        [choice] = decision.choices
        memory, places = decision.memory, {choice.job_id: choice.gang}
        order += choice.job_id
        done[choice.job_id] += 1.0
        now += 10.0
        if done[choice.job_id] == jobs[choice.job_id].rounds:
            del jobs[choice.job_id], places[choice.job_id]
    assert order == "121223333"


@pytest.mark.parametrize(("policy", "first"), [("hlas", "long"), ("hlas-p", "short")])
def test_a_job_of_a_long_workload_lets_jobs_of_a_short_one_pass(policy: str, first: str) -> None:
    """On one GPU, where one of either kind has ended; the long one came first."""
    ended: dict[Fingerprint, tuple[float, ...]] = {
        Fingerprint("long"): (200.0,),
        Fingerprint("short"): (2.0,),
    }
    memory = msgspec.msgpack.encode(HlasMemory(ended=ended))
    jobs = [toy(name, Toy((10.0,), 1, 1000), workload=Fingerprint(name)) for name in ("long", "short")]
    seen = msgspec.structs.replace(view(jobs, ONE), memory=memory)
    [choice] = decide(policy, seen, silent, hlas_thresholds=UNITS).choices
    assert choice.job_id == first


@pytest.mark.parametrize("policy", ["hlas-p+predictor=none", "hlas-l+predictor=none"])
def test_without_predictions_it_is_hlas(policy: str) -> None:
    jobs = [alike("a"), alike("b", 12.0), alike("c", 3.0)]
    ours, plain = of(jobs, None, 100.0, policy), of(jobs, None, 100.0, "hlas")
    assert msgspec.structs.replace(ours, memory=b"") == msgspec.structs.replace(plain, memory=b"")


def test_hlas_l_reads_the_fit() -> None:
    job = toy("x", Toy((10.0,), 1, 1000), 6.0)
    assert of([job], None, 100.0, "hlas").standings[JobId("x")].priority == 7.0
    assert of([job], None, 100.0, "hlas-l").standings[JobId("x")].priority == 12.0


# ---- what is remembered of the past


def test_ended_jobs_are_remembered_by_workload_and_not_for_ever() -> None:
    jobs = {
        JobId(f"j{index}"): RememberedJob(1, QueuePlace(), (), Fingerprint("w"), float(index), 0.0)
        for index in range(ENDED_AT_MOST + 5)
    }
    before = HlasMemory(at=0.0, jobs=jobs)
    assert with_ended(before, set(jobs), 10.0) == {}
    assert with_ended(before, set(), 10.0) == {"w": tuple(map(float, range(5, ENDED_AT_MOST + 5)))}


def test_a_job_that_is_kept_apart_has_not_ended() -> None:
    first = of([alike("a")], None, 100.0)
    present = placed(alike("a"), first.choices[0].gang).present
    assert present is not None
    seen = msgspec.structs.replace(view([], ONE, at=200.0), memory=first.memory, apart={JobId("a"): present})
    assert remembered(decide("hlas-p", seen, silent).memory).ended == {}


def test_the_policies_are_built_with_their_predictors() -> None:
    for name in ("hlas-p", "hlas-l", "hlas-p+predictor=fit"):
        assert Registry().find(name)
