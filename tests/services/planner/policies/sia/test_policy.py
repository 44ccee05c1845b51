import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from schemas.ids import Fingerprint, GpuType
from schemas.plans import PlanKind, Stage, Waiting
from services.planner.policies.contract.configurations import Configurations
from services.planner.policies.contract.decision import Decision, Trigger
from services.planner.policies.contract.estimates import Estimated
from services.planner.policies.contract.view import View
from services.planner.policies.sia.policy import Sia, SiaFaithful, SiaMemory, SiaOptions, SiaPowers
from services.planner.policies.sia.table import PLACES_AT_MOST
from tests.services.planner.planner_builders import (
    FAST,
    SLOW,
    Estimator,
    chosen,
    decide,
    job,
    linear,
    node,
    nodes,
    place_on,
    present,
    view,
)

SIA = "services.planner.policies.sia.policy:Sia"
POWERS = "services.planner.policies.sia.policy:SiaPowers"
FAITHFUL = "services.planner.policies.sia.policy:SiaFaithful"
FREELY = "+scale_up=1e6"
FREE = SiaOptions(scale_up=1e6)
"""a job may get any count of its demand at once"""


def gpus(decision: Decision) -> dict[str, int]:
    return {job_id: sum(place.values()) for job_id, place in chosen(decision).items()}


def sizes(policy: Sia, seen: View) -> dict[str, list[int]]:
    """By job: the counts that are asked about."""
    wanted = policy.wants(seen)
    found: dict[str, set[int]] = {}
    for row, index in enumerate(wanted.job.tolist()):
        found.setdefault(wanted.jobs[index], set()).add(sum(wanted.at(row).values()))
    return {name: sorted(counts) for name, counts in found.items()}


def remembering(seen: View, **largest: int) -> View:
    known = {job(name).job_id: count for name, count in largest.items()}
    return msgspec.structs.replace(seen, memory=msgspec.json.encode(SiaMemory(largest=known)))


def speeds(**by_node: float) -> Estimator:
    """Of one GPU, by node; nothing is known of nodes that are not named."""

    def estimator(wanted: Configurations) -> Estimated:
        known = linear(wanted)
        speed = np.array([by_node.get(name, np.nan) for name in wanted.nodes])
        throughput = known.throughput * speed[wanted.node[wanted.start[:-1]]]
        return Estimated(throughput=throughput, layer=known.layer)

    return estimator


def test_sia_plans_only_at_the_start_of_rounds() -> None:
    assert dict(Sia.calls) == {Trigger.ROUND: PlanKind.FIRST}


def test_every_count_of_the_demand_is_asked_about_wherever_it_may_be() -> None:
    cluster = [node("a0"), node("a1"), node("b0", gpu_type=SLOW)]
    seen = view([job("x", (1, 3, 12), gpu_types=(FAST, SLOW))], cluster)
    wanted = Sia(FREE).wants(seen)
    assert [wanted.at(row) for row in range(len(wanted))] == [
        place_on(a0=1),
        place_on(a1=1),
        place_on(a0=3),
        place_on(a1=3),
        place_on(a0=8, a1=4),
        place_on(a0=4, a1=8),
        place_on(b0=1),
        place_on(b0=3),
        place_on(b0=12),
    ]


def test_a_goodput_is_the_mean_over_the_nodes_of_the_type() -> None:
    """Not the first node's: hosts of one GPU type may be unlike."""
    seen = view([job("x", (2,))], nodes(8, 8, 8))
    [choice] = decide(SIA, seen, estimator=speeds(a0=1.0, a1=4.0)).choices
    assert choice.throughput == 50.0  # of 20 and 80; a2 is not known
    spread = view([job("x", (12,))], nodes(8, 8))
    [choice] = decide(SIA + FREELY, spread, estimator=speeds(a0=1.0, a1=4.0)).choices
    assert choice.throughput == pytest.approx((1.0 + 4.0) / 2 * 12 * 10.0 * 0.8)


def test_of_many_nodes_an_even_sample_is_estimated() -> None:
    """A large cluster has as many rows a job as one of 16 nodes a type, and its last nodes count too."""
    cluster = [node(f"a{index:02d}") for index in range(40)]
    wanted = Sia(FREE).wants(view([job("x", (2, 12))], cluster))
    assert len(wanted) == 2 * PLACES_AT_MOST
    alone = [index for row in range(PLACES_AT_MOST) for index in wanted.cells(row)]
    assert (alone[:3], alone[-1]) == ([0, 2, 5], 37)


def test_jobs_of_one_workload_are_asked_about_once() -> None:
    """Whatever each may be given: the union is asked about, under the first one's name."""
    alike = Fingerprint("same")
    jobs = [job("x", (1, 2), workload=alike), job("y", (2, 3), workload=alike), job("z", (5,))]
    assert sizes(Sia(FREE), view(jobs, nodes(8))) == {"x": [1, 2, 3], "z": [5]}
    decision = decide(SIA + FREELY, view(jobs, nodes(16, 8)))
    assert gpus(decision) == {"x": 2, "y": 3, "z": 5}
    assert decision.configurations == 5


def test_a_count_larger_than_its_type_is_estimated_and_not_granted() -> None:
    """As if there were as many nodes like its own: the other type may need its curve."""
    cluster = [node("a0"), node("a1"), node("b0", gpu_type=SLOW)]
    seen = view([job("x", (1, 12), gpu_types=(FAST, SLOW))], cluster)
    wanted = Sia(FREE).wants(seen)
    cells = slice(wanted.start[-2], wanted.start[-1])
    assert (wanted.node[cells].tolist(), wanted.gpus[cells].tolist()) == ([2, 2], [8, 4])
    decision = decide(SIA + FREELY, seen, estimator=speeds(a0=1.0, a1=1.0, b0=5.0))
    assert (gpus(decision), decision.configurations) == ({"x": 12}, 3)


def test_with_powers_only_the_authors_counts_of_the_demand_are_offered() -> None:
    jobs = [job("x", (1, 2, 3, 4, 12, 16)), job("odd", (3, 5))]
    assert sizes(SiaPowers(FREE), view(jobs, nodes(8, 8))) == {
        "x": [1, 2, 4, 16],
        "odd": [3, 5],
    }


def test_a_job_at_most_doubles_its_largest_count_so_far() -> None:
    jobs = [
        job("new", (1, 2, 3, 4)),
        job("ran", (1, 2, 4, 6, 8)),
        job("runs", (1, 4, 6), present=present(a0=4)),
    ]
    seen = remembering(view(jobs, nodes(8, 8)), ran=3)
    assert sizes(Sia(SiaOptions()), seen) == {"new": [1, 2], "ran": [1, 2, 4, 6], "runs": [1, 4, 6]}


def test_memory_keeps_the_most_that_a_job_was_given() -> None:
    seen = remembering(view([job("x", (1, 2, 4, 8)), job("y", (1,))], nodes(8)), x=2, gone=8)
    decision = decide(SIA, seen)
    assert gpus(decision) == {"x": 4, "y": 1}
    assert msgspec.json.decode(decision.memory, type=SiaMemory).largest == {"x": 4}


@given(memory=st.binary() | st.sampled_from([b"{}", b'{"version":9,"largest":{"x":8}}', b'{"largest":[]}']))
@limits(max_examples=30, deadline=None)
def test_a_memory_that_it_did_not_write_is_a_fresh_start(memory: bytes) -> None:
    seen = view([job("x", (1, 2, 4, 8))], nodes(8))
    assert decide(SIA, msgspec.structs.replace(seen, memory=memory)) == decide(SIA, seen)


def test_the_gain_is_lambda_less_utility() -> None:
    decision = decide(SIA + FREELY, view([job("x", (1, 4))], nodes(8)))
    assert decision.objective == pytest.approx(1.1 - 4**-0.5, rel=1e-5)
    assert (decision.stage, decision.configurations) == (Stage.OPTIMAL, 2)


def test_lambda_is_the_cost_of_leaving_a_job_out() -> None:
    seen = view([job("x", (1, 7)), job("y", (1, 7))], nodes(7))
    assert sorted(gpus(decide(SIA + FREELY, seen)).values()) == [7]  # 1.1 − 7^−0.5 > 2 · (1.1 − 1)
    assert sorted(gpus(decide(SIA + FREELY, seen, penalty=2.0)).values()) == [1, 1]


def test_above_0_p_is_for_the_sum_of_speeds() -> None:
    seen = view([job("x", (1, 7)), job("y", (1, 7))], nodes(7))
    decision = decide(SIA + FREELY, seen, power=1.0, penalty=2.0)
    assert sorted(gpus(decision).values()) == [7]
    assert decision.objective == pytest.approx(7.0 + 2.0, rel=1e-5)


def test_a_restart_must_pay_for_the_job_s_earlier_restarts() -> None:
    """4 GPUs are worth a restart to a job that restarted rarely; to one that often did, they are not."""
    runs = present(a0=3)
    for restarts, count in ((0, 4), (5, 3)):
        one = job("x", (3, 4), present=runs, restarts=restarts, submitted_at=0.0)
        seen = view([one], nodes(8), at=400.0)
        dear = msgspec.structs.replace(seen, restart_s=30.0)
        assert gpus(decide(SIA, dear)) == {"x": count}


def test_a_job_of_the_same_count_keeps_its_place() -> None:
    seen = view([job("x", (2,), present=present(a1=2))], nodes(8, 8))
    assert chosen(decide(SIA, seen)) == {"x": place_on(a1=2)}


def test_a_job_that_is_being_started_keeps_its_place() -> None:
    starting = msgspec.structs.replace(present(a0=1), starting=True)
    one = job("x", (1, 8), present=starting, submitted_at=100.0)
    assert gpus(decide(SIA + FREELY, view([one], nodes(8)))) == {"x": 1}
    runs = msgspec.structs.replace(one, present=present(a0=1))
    assert gpus(decide(SIA + FREELY, view([runs], nodes(8)))) == {"x": 8}


def test_an_unknown_type_is_projected_from_a_known_one() -> None:
    cluster = [node("a0", 1), node("b0", 1, gpu_type=SLOW)]
    one = job("x", gpu_types=(FAST, SLOW), single_gpu={FAST: 1.0, SLOW: 3.0})
    [choice] = decide(SIA, view([one], cluster), estimator=speeds(a0=1.0)).choices
    assert (choice.gang.configuration, choice.throughput) == (place_on(b0=1), 30.0)


def test_a_curve_goes_on_beyond_the_gpus_of_the_type_that_lends_it() -> None:
    """Nothing is known of the job on the larger type; on the smaller it was never on more than 2 GPUs."""
    cluster = [node("a0", 2, gpus=2), node("b0", gpu_type=SLOW), node("b1", gpu_type=SLOW)]
    one = job("x", (1, 2, 16), gpu_types=(FAST, SLOW), single_gpu={FAST: 1.0, SLOW: 0.5})
    [choice] = decide(SIA + FREELY, view([one], cluster), estimator=speeds(a0=1.0)).choices
    assert choice.gang.configuration == place_on(b0=8, b1=8)
    assert choice.throughput == pytest.approx(10.0 * 16 * 0.8 * 0.5)


@pytest.mark.parametrize(("listed", "throughput"), [("", 10.0), ("c b", 20.0), ("b a", 20.0)])
def test_the_first_known_type_of_those_listed_lends_its_curve(listed: str, throughput: float) -> None:
    cluster = [node("a0", 0), node("b0", 0, gpu_type=SLOW), node("c0", gpu_type="c")]
    single = {FAST: 1.0, SLOW: 1.0, GpuType("c"): 1.0}
    seen = view([job("x", gpu_types=tuple(single), single_gpu=single)], cluster)
    [choice] = decide(SIA, seen, estimator=speeds(a0=1.0, b0=2.0), types=listed).choices
    assert (choice.gang.configuration, choice.throughput) == (place_on(c0=1), throughput)


def test_a_job_without_estimates_begins_with_its_smallest_count() -> None:
    jobs = [job("known", (1,), gpu_types=(SLOW,)), job("unknown", (1, 2, 4))]
    seen = view(jobs, [node("a0"), node("b0", gpu_type=SLOW)])
    assert gpus(decide(SIA + FREELY, seen, estimator=speeds(b0=1.0))) == {"known": 1, "unknown": 1}


def test_between_equals_the_more_urgent_job_runs() -> None:
    seen = view([job("new", (8,), wait_s=1.0), job("old", (8,), wait_s=50.0)], nodes(8))
    assert chosen(decide(SIA, seen)) == {"old": place_on(a0=8)}


def test_a_count_that_fits_no_node_leaves_the_job_out_with_the_reason() -> None:
    seen = view([job("x", (3,), wait_s=9.0), job("y", (3,), wait_s=1.0)], nodes(4, 2))
    decision = decide(SIA + FREELY, seen)
    assert chosen(decision) == {"x": place_on(a0=3)}
    [left] = decision.left
    assert (left.reason, left.detail) == (Waiting.NO_CONFIGURATION, "no room for 3 GPUs together on a")


def test_a_running_job_whose_new_count_fits_no_node_stays_as_it_is() -> None:
    jobs = [
        job("x", (3,), wait_s=9.0),
        job("y", (2, 3), wait_s=1.0, present=present(a1=2), submitted_at=100.0),
    ]
    seen = view(jobs, nodes(4, 2))
    assert chosen(decide(SIA + FREELY, seen)) == {"x": place_on(a0=3), "y": place_on(a1=2)}


@pytest.mark.parametrize(
    ("policy", "counts"),
    [
        # by the gain 1.1 − (slowest · speed / slowest speed)^−0.5 of a set of jobs that 4 GPUs are enough for
        ("sia", {"rigid": 4}),  # 1.1 − 4^−0.5 = 0.6; the others gain 0.1 each at their smallest count
        ("sia-powers", {"rigid": 4}),
        ("sia-faithful", {"rigid": 4}),
        ("sia-plain", {"elastic": 2, "narrow": 1}),  # 0.1 each, and a rigid job of 4 has no more
        ("sia-min-count", {"rigid": 4}),
    ],
)
def test_variants_weigh_a_job_s_smallest_goodput_differently(policy: str, counts: dict[str, int]) -> None:
    jobs = [
        job("rigid", (4,), wait_s=1.0),
        job("narrow", (1,), wait_s=9.0),
        job("elastic", (2, 9), wait_s=9.0),
    ]
    assert gpus(decide(policy + FREELY, view(jobs, nodes(4)))) == counts


def test_only_by_min_count_is_an_elastic_job_worth_its_smallest_count() -> None:
    jobs = [job("wide", (4, 5), wait_s=1.0), job("narrow", (1, 9), wait_s=9.0)]
    for policy, counts in (
        ("sia", {"narrow": 1}),
        ("sia-plain", {"narrow": 1}),
        ("sia-min-count", {"wide": 4}),
    ):
        assert gpus(decide(policy + FREELY, view(jobs, nodes(4)))) == counts


def test_a_rigid_job_without_estimates_counts_for_its_gpus_too() -> None:
    jobs = [job("known"), job("unknown", (4,), gpu_types=(SLOW,), wait_s=1.0)]
    cluster = [node("a0", 0), node("b0", 4, gpu_type=SLOW)]
    seen = view([*jobs, job("other", (1,), gpu_types=(SLOW,), wait_s=9.0)], cluster)

    def of_known(wanted: Configurations) -> Estimated:
        known = linear(wanted)
        strange = np.array([wanted.jobs[index] == "unknown" for index in wanted.job])
        return Estimated(throughput=np.where(strange, np.nan, known.throughput), layer=known.layer)

    assert gpus(decide("sia" + FREELY, seen, estimator=of_known)) == {"unknown": 4}
    assert gpus(decide("sia-plain" + FREELY, seen, estimator=of_known)) == {"other": 1}


def test_the_window_leaves_out_jobs_behind_its_edge() -> None:
    """As Hops' own: the first of the queue whose least demands fill the GPUs."""
    jobs = [job("late", (8,), wait_s=1.0), job("first", (2, 4), wait_s=9.0), job("next", (2,), wait_s=8.0)]
    seen = view(jobs, nodes(4))
    assert Sia(SiaOptions(queue="window")).wants(seen).jobs == ("first", "next")
    assert gpus(decide("sia", seen, queue="window")) == {"first": 2, "next": 2}
    assert Sia(SiaOptions(queue="window", window_factor=2.0)).wants(seen).jobs == ("first", "next", "late")
    [left] = decide("sia", seen, queue="window").left
    assert (left.job_id, left.reason) == ("late", Waiting.OUTSIDE_WINDOW)


def test_a_starting_job_stays_although_it_is_outside_the_window() -> None:
    starting = msgspec.structs.replace(present(a0=2), starting=True)
    jobs = [job("first", (8,), wait_s=9.0), job("begun", (2,), wait_s=0.0, present=starting)]
    assert chosen(decide("sia+queue=window", view(jobs, nodes(8)))) == {"begun": place_on(a0=2)}


def test_by_weights_a_long_wait_outweighs_a_gain() -> None:
    """0.1 · 1 against 0.6 · 0.01: the rule weighs what a configuration gains."""
    jobs = [job("waits", (1,), wait_s=100.0), job("gains", (4,), wait_s=1.0)]
    seen = view(jobs, nodes(4))
    assert gpus(decide("sia", seen)) == {"gains": 4}
    assert gpus(decide("sia", seen, queue="weights")) == {"waits": 1}
    assert gpus(decide("sia", seen, queue="weights", priority_power=0.1)) == {"gains": 4}


def test_the_authors_have_no_queue() -> None:
    """Of equals the first to come runs, however urgent the other is; rigid jobs are placed first."""
    jobs = [job("new", (1, 8), wait_s=1.0), job("old", (1, 8), wait_s=50.0), job("rigid", (8,))]
    assert SiaFaithful(FREE).wants(view(jobs, nodes(8))).jobs == ("rigid", "new", "old")
    assert SiaPowers(FREE).wants(view(jobs, nodes(8))).jobs == ("old", "rigid", "new")


def test_the_authors_place_again_in_every_round() -> None:
    one = job("x", (2,), present=present(a1=2))
    assert chosen(decide(POWERS, view([one], nodes(8, 8)))) == {"x": place_on(a1=2)}
    assert chosen(decide(FAITHFUL, view([one], nodes(8, 8)))) == {"x": place_on(a0=2)}


def test_the_authors_variant_does_not_move_a_starting_job_either() -> None:
    starting = msgspec.structs.replace(present(a1=2), starting=True)
    seen = view([job("x", (2,), present=starting)], nodes(8, 8))
    assert chosen(decide(FAITHFUL, seen)) == {"x": place_on(a1=2)}


def test_the_cost_of_a_restart_may_depend_on_a_jobs_name() -> None:
    """A restart of 30 s is worth 4 GPUs to this job, one of 300 s is not: it has lost too much to them."""
    one = job("bert-1", (3, 4), present=present(a0=3), restarts=1, submitted_at=0.0)
    seen = view([one], nodes(8), at=400.0)
    for costs, count in (("", 4), ("gpt=300", 4), ("gpt=1 bert=300", 3)):
        dear = msgspec.structs.replace(seen, restart_s=30.0)
        assert gpus(decide(f"{SIA}+restart_s={costs}", dear)) == {"bert-1": count}
