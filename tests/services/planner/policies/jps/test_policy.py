"""What the policies decide at a reset, each decision of the paper's and of ours."""

from typing import Any

import msgspec
import numpy as np
import pytest

from schemas.ids import JobId, PlacementId
from schemas.placement import Gang, Lockstep, Proportional
from schemas.plans import Layer, PlanKind, Waiting
from services.planner.policies.contract.configurations import Configurations
from services.planner.policies.contract.decision import Decision, Trigger, fault
from services.planner.policies.contract.estimates import Estimated
from services.planner.policies.contract.view import Present, View
from services.planner.policies.jps.optimus import Optimus
from services.planner.policies.jps.policy import Jps
from services.planner.policies.jps.shares import shared_by_speed
from services.planner.policies.registry import Registry
from shared.domain import gangs
from tests.services.planner.planner_builders import chosen, decide, linear, node, place_on, view
from tests.services.planner.policies.jps.jps_builders import by_type, faithful, printed, trains, unlike
from tests.services.planner.policies.jps.test_examples import three_jobs, two_jobs

ALL = ("has", "jps", "has-weighted", "jps-weighted", "optimus", "optimus-lb", "optimus-aware", "exhaustive")
TWO_TYPES = {"t4": 10.0, "v100": 20.0}


def here(gang: Gang, *, starting: bool = False) -> Present:
    return Present(
        placement_id=PlacementId("now"), gang=gang, throughput=7.0, layer=Layer.ENTITY, starting=starting
    )


def with_present(seen: View, name: str, gang: Gang, *, stays: bool = False) -> View:
    jobs = [
        msgspec.structs.replace(one, present=here(gang), stays=stays) if one.job_id == name else one
        for one in seen.jobs
    ]
    return msgspec.structs.replace(seen, jobs=tuple(jobs))


def left(decision: Decision) -> dict[str, Waiting]:
    return {one.job_id: one.reason for one in decision.left}


# ---- when


@pytest.mark.parametrize("policy", ALL)
def test_all_is_decided_again_at_events_and_never_at_rounds(policy: str) -> None:
    calls = Registry().find(policy).calls
    assert Trigger.ROUND not in calls
    assert set(calls.values()) == {PlanKind.FIRST}
    assert len(calls) == len(Trigger) - 1


@pytest.mark.parametrize("policy", ALL)
def test_no_job_starts_while_other_jobs_are_measured(policy: str) -> None:
    running = Gang.of(place_on(**{"t4-0": 1}))
    seen = msgspec.structs.replace(with_present(two_jobs(), "vgg19", running), jobs_coming=1)
    decision = decide(policy, seen)
    assert chosen(decision) == {"vgg19": {"t4-0": 1}}
    assert decision.left[0].detail == "other jobs are still measured"
    assert decision.again_at == seen.at + 600.0
    later = msgspec.structs.replace(seen, at=seen.at + 500.0, memory=decision.memory)
    assert decide(policy, later).again_at == decision.again_at


@pytest.mark.parametrize("policy", ALL)
def test_jobs_that_are_measured_are_not_waited_for_without_end(policy: str) -> None:
    seen = msgspec.structs.replace(two_jobs(), jobs_coming=1)
    first = decide(policy, seen, gather_s=100)
    later = msgspec.structs.replace(seen, at=seen.at + 100.0, memory=first.memory)
    assert len(decide(policy, later, gather_s=100).choices) == 2
    assert len(decide(policy, seen, gather_s=0).choices) == 2


def test_jobs_that_are_not_shown_for_another_reason_are_not_waited_for() -> None:
    """One is shown apart, another is held back since it was refused several times in a row."""
    apart = {JobId("far"): here(Gang.of(place_on(elsewhere=1)))}
    seen = msgspec.structs.replace(two_jobs(), jobs_present=4, apart=apart)
    assert len(decide("jps", seen).choices) == 2


# ---- what stays


@pytest.mark.parametrize("policy", ALL)
def test_a_reset_may_move_every_job_and_a_static_policy_moves_none(policy: str) -> None:
    wrong = Gang.of(place_on(**{"t4-0": 2, "v100-0": 2}))
    seen = with_present(two_jobs(), "resnet18", wrong)
    assert set(chosen(faithful(policy, seen))) == {"resnet18", "vgg19"}
    decision = faithful(policy, seen, static="true")
    assert chosen(decision) == {"resnet18": wrong.configuration}
    assert left(decision) == {"vgg19": Waiting.OUTWEIGHED}


@pytest.mark.parametrize("policy", ALL)
def test_a_job_that_may_not_be_moved_stays(policy: str) -> None:
    seen = with_present(two_jobs(), "vgg19", Gang.of(place_on(**{"t4-0": 1})), stays=True)
    decision = faithful(policy, seen)
    assert chosen(decision)["vgg19"] == {"t4-0": 1}
    assert fault(seen, decision) is None


@pytest.mark.parametrize("policy", ALL)
def test_gpus_that_are_idle_since_jobs_may_not_be_moved_are_looked_at_again(policy: str) -> None:
    seen = view([trains("only", TWO_TYPES, 1e4, 4)], two_jobs().nodes)
    held = with_present(seen, "only", Gang.of(place_on(**{"t4-0": 1})), stays=True)
    assert decide(policy, held).again_at == seen.at + seen.round_s
    assert decide(policy, held, static="true").again_at is None
    assert decide(policy, seen).again_at is None


def test_a_job_keeps_nodes_that_serve_it_as_well() -> None:
    """Two nodes alike; whichever it has, it keeps."""
    nodes = [unlike(f"t4-{index}", 2, "t4", unconnected=True) for index in range(2)]
    jobs = [trains(name, {"t4": 10.0}, 1e4, 2) for name in ("a", "b")]
    for own, other in (("t4-0", "t4-1"), ("t4-1", "t4-0")):
        seen = with_present(view(jobs, nodes), "b", Gang.of(place_on(**{own: 2})))
        assert chosen(faithful("has", seen)) == {"a": {other: 2}, "b": {own: 2}}


# ---- who takes part


@pytest.mark.parametrize("policy", ALL)
def test_jobs_take_part_as_they_came_until_the_gpus_are_dealt(policy: str) -> None:
    jobs = [trains(f"j{index}", TWO_TYPES, 1e4, 4, submitted_at=float(index)) for index in range(6)]
    seen = view(jobs, [unlike("t4-0", 2, "t4"), unlike("v100-0", 2, "v100")])
    decision = decide(policy, seen)
    assert set(chosen(decision)) == {"j0", "j1", "j2", "j3"}
    assert left(decision) == {"j4": Waiting.OUTWEIGHED, "j5": Waiting.OUTWEIGHED}


@pytest.mark.parametrize("policy", ALL)
def test_a_job_without_room_on_its_types_does_not_hold_up_others(policy: str) -> None:
    jobs = [trains("first", {"t4": 10.0}, 1e4, 2), trains("second", {"t4": 10.0}, 1e4, 2)]
    jobs += [trains("third", {"t4": 10.0}, 1e4, 2), trains("fourth", {"v100": 20.0}, 1e4, 2)]
    jobs = [msgspec.structs.replace(one, demand=(2,)) for one in jobs]
    seen = view(jobs, [unlike("t4-0", 2, "t4"), unlike("v100-0", 2, "v100")])
    decision = decide(policy, seen)
    assert set(chosen(decision)) == {"first", "fourth"}


@pytest.mark.parametrize("policy", ALL)
def test_a_job_that_no_node_can_serve_has_no_configuration(policy: str) -> None:
    jobs = [trains("here", TWO_TYPES, 1e4, 2), trains("nowhere", {"a100": 10.0}, 1e4, 2)]
    decision = decide(policy, view(jobs, [unlike("t4-0", 2, "t4")]))
    assert left(decision) == {"nowhere": Waiting.NO_CONFIGURATION}


@pytest.mark.parametrize("policy", ALL)
def test_where_types_forbid_every_category_each_job_gets_the_gpus_of_its_type(policy: str) -> None:
    """Four GPUs and two jobs that run on one type each, with one GPU or three: (3, 1) has no room."""
    jobs = [
        msgspec.structs.replace(trains(name, {name: 10.0}, 1e4), demand=(1, 3)) for name in ("t4", "v100")
    ]
    seen = view(jobs, [unlike("t4-0", 2, "t4"), unlike("v100-0", 2, "v100")])
    decision = decide(policy, seen)
    assert by_type(decision) == {"t4": {"t4": 1}, "v100": {"v100": 1}}


# ---- how many are looked at


def test_has_samples_where_categories_are_too_many_and_says_so() -> None:
    seen = printed(5)
    assert faithful("has", seen).configurations == 364
    sampled = faithful("has", seen, has_categories_max=363)
    assert sampled.configurations == 60
    assert sampled.notes == ("364 categories, too many for HAS: 60 are looked at, as JPS does",)
    assert sampled.objective == faithful("jps", seen).objective


def test_a_small_sample_of_very_many_categories_is_noted_as_chance() -> None:
    jobs = [trains(f"j{index:02d}", TWO_TYPES, 1e4 + index, 40) for index in range(25)]
    nodes = [unlike(f"{name}-{index}", 8, name) for index in range(4) for name in ("t4", "v100")]
    decision = faithful("jps", view(jobs, sorted(nodes, key=lambda one: one.node_id)))
    assert decision.notes == ("25 jobs on 64 GPUs have 10^17 categories: 60 of them are chance",)
    assert len(decision.choices) == 25


def test_fewer_are_looked_at_where_jobs_are_many() -> None:
    jobs = [trains(f"j{index:03d}", TWO_TYPES, 1e4 + index, 3) for index in range(400)]
    nodes = [unlike(f"{name}-{index:02d}", 8, name) for name in ("t4", "v100") for index in range(26)]
    seen = view(jobs, nodes)
    assert faithful("jps", seen).configurations == 50


def test_too_large_an_exact_optimum_is_refused_and_running_jobs_are_kept() -> None:
    jobs = [trains(f"j{index}", {**TWO_TYPES, "p100": 15.0}, 1e4, 60) for index in range(3)]
    nodes = [unlike(f"{name}-{index}", 9, name) for name in ("p100", "t4", "v100") for index in range(3)]
    seen = with_present(view(jobs, nodes), "j1", Gang.of(place_on(**{"t4-0": 3})))
    decision = decide("exhaustive", seen)
    note = "27 p100, 27 t4, 27 v100: 21,952 counts by type for a job, at most 20,000; what runs was kept"
    assert decision.notes == (note,)
    assert chosen(decision) == {"j1": {"t4-0": 3}}
    assert left(decision) == {"j0": Waiting.OUTWEIGHED, "j2": Waiting.OUTWEIGHED}


def test_the_same_reset_draws_the_same_sample_and_another_a_new_one() -> None:
    seen = printed(10)
    found = {faithful("jps", seen, samples=5).objective for _ in range(3)}
    assert len(found) == 1
    later = {
        faithful("jps", msgspec.structs.replace(seen, at=seen.at + step), samples=5).objective
        for step in range(8)
    }
    assert len(later) > 1
    assert len({faithful("jps", seen, samples=5, seed=seed).objective for seed in range(8)}) > 1


@pytest.mark.parametrize("alpha", [0.0, 0.7])
def test_a_market_by_prices_gives_the_same_result(alpha: float) -> None:
    by_flow, by_auction = (
        faithful("jps", three_jobs(), alpha=alpha, market=market).objective for market in ("flow", "auction")
    )
    assert by_flow == by_auction


def test_the_weighted_variant_repairs_the_paper_s_example() -> None:
    assert faithful("has", two_jobs()).objective == pytest.approx(11_225.8, abs=0.05)
    assert faithful("has-weighted", two_jobs()).objective == pytest.approx(10_592.0, abs=0.05)


def test_beta_weighs_fairness() -> None:
    """E4: β = 1 takes category 6, β = 0 category 5, (1, 2, 2)."""
    by_beta = {beta: faithful("jps", three_jobs(), alpha=0, beta=beta).objective for beta in (1.0, 0.5, 0.0)}
    assert by_beta == pytest.approx({1.0: 8_157.27, 0.5: 8_157.27, 0.0: 10_979.74}, abs=0.005)


# ---- shares


def test_unlike_gpus_take_samples_by_their_speed() -> None:
    """E6: 384·550/1194 = 176.88, 384·644/1194 = 207.12; 1,186.5 samples/s, where equal shares give 825."""
    [choice] = [one for one in faithful("has", two_jobs()).choices if one.job_id == "resnet18"]
    assert choice.gang == Gang.of(place_on(**{"t4-0": 2, "v100-0": 1}), Proportional(samples=(177, 207)))
    assert choice.throughput == pytest.approx(1_186.5, abs=0.05)
    assert gangs.throughput(Gang(choice.gang.members), (275.0, 644.0), 128) == 825.0


def test_gpus_that_get_the_same_are_in_lockstep() -> None:
    rates = {one.node_id: 10.0 for one in (node("a"), node("b"))}
    assert shared_by_speed(place_on(a=2, b=3), rates, 128, most=dict.fromkeys(rates, 2.0)) == Gang.of(
        place_on(a=2, b=3)
    )


def test_no_gpu_takes_more_than_its_memory_was_shown_to_hold() -> None:
    rates = {one.node_id: speed for one, speed in ((node("a"), 10.0), (node("b"), 90.0), (node("c"), 20.0))}
    gang = shared_by_speed(place_on(a=1, b=1, c=1), rates, 60, most=dict.fromkeys(rates, 2.0))
    assert gang.sync == Proportional(samples=(20, 120, 40))
    gang = shared_by_speed(place_on(a=1, b=1, c=1), rates, 60, most=dict.fromkeys(rates, 1.0))
    assert gang.sync == Lockstep()


def test_a_job_whose_shares_are_held_to_memory_is_as_slow_as_that() -> None:
    """By speed the V100 would take 182 of 200 samples; it has room for 125, and the T4 needs 7.5 s for 75."""
    jobs = [
        msgspec.structs.replace(one, batch_size=100, batch_most={"t4": 125, "v100": 125})
        for one in [trains("only", {"t4": 10.0, "v100": 100.0}, 1_000.0, 2)]
    ]
    nodes = [unlike(f"{name}-0", 1, name, unconnected=True) for name in ("t4", "v100")]
    [choice] = faithful("jps", view(jobs, nodes)).choices
    assert choice.gang.sync == Proportional(samples=(75, 125))
    assert choice.throughput == pytest.approx(200 / 7.5)
    assert faithful("jps", view(jobs, nodes)).objective == pytest.approx(1_000.0 / (200 / 7.5))


def test_nodes_that_run_lockstep_alone_get_gangs_in_lockstep() -> None:
    plain = [msgspec.structs.replace(one, modes=("lockstep",)) for one in two_jobs().nodes]
    seen = msgspec.structs.replace(two_jobs(), nodes=tuple(plain))
    decision = faithful("has", seen)
    assert fault(seen, decision) is None
    assert all(one.gang.mode == "lockstep" for one in decision.choices)


@pytest.mark.parametrize("policy", ["optimus", "optimus-aware+shares=equal"])
def test_optimus_shares_equally(policy: str) -> None:
    seen = view([trains("only", TWO_TYPES, 1e4, 4)], two_jobs().nodes)
    [choice] = decide(policy, seen).choices
    assert choice.gang.mode == "lockstep"


def test_optimus_stops_where_no_job_gains() -> None:
    """A slower GPU would hold the fast ones up: 2 · 20 on two V100 is as much as 4 · 10 on all."""
    seen = view([trains("only", TWO_TYPES, 1e4, 4)], two_jobs().nodes)
    [choice] = faithful("optimus-aware", seen, shares="equal").choices
    assert choice.gang.configuration == {"v100-0": 2}
    [choice] = faithful("optimus-aware", seen).choices
    assert choice.gang.gpus == 4


def test_optimus_deals_gpus_at_random_by_its_seed() -> None:
    places = [by_type(faithful("optimus", printed(5), seed=seed)) for seed in range(8)]
    assert any(one != places[0] for one in places)
    counts = [{name: sum(own.values()) for name, own in one.items()} for one in places]
    assert all(one == counts[0] for one in counts)


# ---- estimates and the law of communication


def asked(policy: str, seen: View, **options: Any) -> Configurations:  # noqa: ANN401 - of any policy
    seen_by: list[Configurations] = []

    def answer(wanted: Configurations) -> Estimated:
        seen_by.append(wanted)
        return linear(wanted)

    decide(policy, seen, answer, **options)
    [found] = seen_by
    return found


def test_estimates_are_asked_of_gangs_with_their_shares_each_once() -> None:
    wanted = asked("has", two_jobs(), idle="false")
    rows = [
        (wanted.jobs[wanted.job[row]], tuple(sorted(wanted.at(row).items()))) for row in range(len(wanted))
    ]
    assert len(set(rows)) == len(rows)
    shares = {
        (
            wanted.jobs[wanted.job[row]],
            tuple(wanted.samples[wanted.start[row] : wanted.start[row + 1]].tolist()),
        )
        for row in range(len(wanted))
    }
    assert ("resnet18", (177, 207)) in shares
    assert ("vgg19", (0,)) in shares


@pytest.mark.parametrize("policy", ALL)
def test_the_paper_s_law_asks_for_no_estimates(policy: str) -> None:
    assert len(asked(policy, two_jobs(), law="epoch")) == 0


def test_estimates_decide_between_categories() -> None:
    """Speeds on one GPU say (3, 1); an estimator that knows better of many GPUs turns that round."""

    def spread_is_slow(wanted: Configurations) -> Estimated:
        cells = np.diff(wanted.start)
        speed = np.where(cells > 1, 1.0, 500.0)
        return Estimated(throughput=speed, layer=np.full(len(wanted), 2, dtype=np.uint8))

    decision = decide("has", two_jobs(), spread_is_slow, idle="false")
    assert all(not one.gang.distributed for one in decision.choices)
    assert {one.throughput for one in decision.choices} == {500.0}


def test_the_published_throughput_is_the_estimated_one() -> None:
    decision = decide("jps", two_jobs())
    for one in decision.choices:
        expected = 10.0 * one.gang.gpus * (0.8 if one.gang.distributed else 1.0)
        assert one.throughput == pytest.approx(expected)


def far_apart() -> View:
    """VGG-19 alone on a V100 and two T4 of another node, 10 Gb/s between."""
    speeds = {"t4": 884.0, "v100": 1754.0}
    job = trains("vgg19", speeds, 1e7, 3, gradient_bytes=558.44e6, epoch_samples=50_000.0)
    return view([job], [unlike("t4-0", 2, "t4"), unlike("v100-0", 1, "v100")])


def silent_of_shares(wanted: Configurations) -> Estimated:
    """An estimator that answers for one node alone."""
    single = np.diff(wanted.start) == 1
    return Estimated(
        throughput=np.where(single, 1754.0, np.nan), layer=np.full(len(wanted), 2, dtype=np.uint8)
    )


def test_slow_nodes_stay_idle_where_the_job_is_faster_without() -> None:
    assert chosen(decide("jps", far_apart(), silent_of_shares)) == {"vgg19": {"v100-0": 1}}
    assert chosen(decide("jps", far_apart(), silent_of_shares, idle="false")) == {
        "vgg19": {"t4-0": 2, "v100-0": 1}
    }


def test_the_exact_optimum_leaves_gpus_idle_too() -> None:
    assert chosen(decide("exhaustive", far_apart(), silent_of_shares)) == {"vgg19": {"v100-0": 1}}
    assert chosen(decide("exhaustive", far_apart(), silent_of_shares, idle="false")) == {
        "vgg19": {"t4-0": 2, "v100-0": 1}
    }


def test_an_exchange_an_epoch_is_worth_more_gpus() -> None:
    assert chosen(decide("jps", far_apart(), law="epoch")) == {"vgg19": {"t4-0": 2, "v100-0": 1}}


def test_throughput_by_the_paper_s_law_has_the_exchange_in_it() -> None:
    """200 epochs, each 50,000 samples and an exchange: Λ = 200 · (l_p + l_c)."""
    [choice] = decide("jps", far_apart(), law="epoch").choices
    exchange_s = 2 / 3 * 558.44e6 / 0.625e9
    assert exchange_s == pytest.approx(0.5957, abs=5e-5)
    samples = choice.gang.sync.samples if isinstance(choice.gang.sync, Proportional) else ()
    iteration_s = max(-(-samples[0] // 2) / 884.0, samples[1] / 1754.0) + exchange_s * 384 / 50_000
    assert choice.throughput == pytest.approx(384 / iteration_s)
    assert far_apart().jobs[0].samples / choice.throughput == pytest.approx(
        decide("jps", far_apart(), law="epoch").objective, rel=0.01
    )


def test_a_job_without_epochs_is_one() -> None:
    job = msgspec.structs.replace(far_apart().jobs[0], epoch_samples=None)
    seen = msgspec.structs.replace(far_apart(), jobs=(job,))
    decision = decide("jps", seen, law="epoch")
    assert decision.objective == pytest.approx(1e7 / (1754 + 2 * 884) + 2 / 3 * 558.44e6 / 0.625e9)


def test_only_the_remaining_samples_count() -> None:
    whole, half = two_jobs(), two_jobs()
    jobs = tuple(msgspec.structs.replace(one, samples_done=one.samples / 2) for one in half.jobs)
    half = msgspec.structs.replace(half, jobs=jobs)
    assert faithful("has", half).objective == pytest.approx(faithful("has", whole).objective / 2)


# ---- the policies by name


def test_names_are_options_of_two_policies() -> None:
    assert isinstance(Registry().find("has-weighted"), Jps)
    assert isinstance(Registry().find("optimus-aware"), Optimus)
    assert faithful("has", two_jobs()).objective == faithful("jps", two_jobs(), every="true").objective
