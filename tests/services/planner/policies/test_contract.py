"""What every policy must keep to, whatever it is asked. A policy that is installed is tested by that."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from schemas.ids import GpuType, JobId, PlacementId, RotaId
from schemas.numbers import MOST
from schemas.placement import Gang, Lockstep, Relaxed
from schemas.plans import Layer, Measures, PlanKind, Standing, Waiting
from services.planner.core.viewing import LEAST_PRIORITY
from services.planner.policies.contract.decision import (
    TEXT_LENGTH_MAX,
    Choice,
    Decision,
    Left,
    fault,
    modes_of,
)
from services.planner.policies.contract.view import Present, View
from services.planner.policies.registry import Registry, UnfitPolicy, names
from services.planner.solver import BACKENDS, solving_from_now
from services.planner.solver.effort import Effort
from services.planner.solver.problem import Problem, Solution
from services.planner.work.steps import Decide, decided_by
from tests.services.planner.planner_builders import (
    FAST,
    SLOW,
    decide,
    job,
    linear,
    node,
    place_on,
    present,
    silent,
    view,
)
from tests.services.planner.planner_policies import Slow
from tests.services.planner.planner_views import ALL_MODES, mentioned, views

HERE = "services.planner.policies."
GARBAGE = [b"null", b"[]", b"{}", b'{"jobs": 1}', msgspec.msgpack.encode([[["j0", 0, 0, 0]] * 2, [], []])]
every_policy = pytest.mark.parametrize("policy", names())


@every_policy
@given(seen=views())
@limits(max_examples=15, deadline=None)
def test_a_decision_is_sound(policy: str, seen: View) -> None:
    decision = decide(policy, seen)  # which checks capacity, gangs, one configuration a job
    assert fault(seen, decision) is None


@every_policy
@given(seen=views())
@limits(max_examples=6, deadline=None)
def test_every_job_is_placed_or_has_a_reason(policy: str, seen: View) -> None:
    assert mentioned(decide(policy, seen)) == sorted(job.job_id for job in seen.jobs)


@every_policy
@given(seen=views())
@limits(max_examples=6, deadline=None)
def test_standings_are_by_named_measures(policy: str, seen: View) -> None:
    decision = decide(policy, seen)
    for standing in decision.standings.values():
        assert decision.measures.priority or standing.priority is None
        assert decision.measures.gain or (standing.gain, standing.stay) == (None, None)


@every_policy
@given(seen=views())
@limits(max_examples=6, deadline=None)
def test_a_decision_is_of_plain_kinds_alone(policy: str, seen: View) -> None:
    """What comes back from its message is the same to the last type; so ours are not sent through one."""
    decision = decide(policy, seen)
    plain = msgspec.msgpack.decode(msgspec.msgpack.encode(decision), type=Decision)
    assert repr(plain) == repr(decision)


QUEUES = ("hops", "gavel", "hadar", "las", "sjf", "srtf", "srsf", "tiresias")


@pytest.mark.parametrize("policy", QUEUES)
def test_jobs_that_wait_come_in_the_order_of_the_queue(policy: str) -> None:
    """Four jobs of one GPU, one GPU: the later one came, the shorter it is and the less it had."""
    jobs = [
        job(
            name, (1,), submitted_at=float(at), age_s=400.0 - at, wait_s=10.0 * at, attained_gpu_s=9000.0 - at
        )
        for at, name in enumerate("dcba")
    ]
    decision = decide(policy, view(jobs, [node("a0", 1)], at=100.0))
    waiting = [decision.standings[left.job_id].priority for left in decision.left]
    least_first = "first" in decision.measures.priority
    assert decision.measures.priority
    assert waiting == sorted(waiting, key=lambda one: one or 0.0, reverse=not least_first)
    assert len(decision.standings) == 4


def test_a_gain_is_that_of_the_place_given_else_of_the_best_one() -> None:
    """Of two jobs alike the one that waited longer gets the GPU; the other bid for it too."""
    jobs = [
        job(name, (1,), age_s=100.0, wait_s=wait_s)
        for name, wait_s in (("urgent", 200.0), ("patient", 100.0))
    ]
    for policy in ("hops+window_factor=2", "sia"):
        decision = decide(policy, view(jobs, [node("a0", 1)], at=300.0))
        given, waits = decision.standings[JobId("urgent")], decision.standings[JobId("patient")]
        assert given.gain is not None
        assert waits.gain is not None
        assert given.gain > waits.gain > 0.0
        assert given.stay is None


@pytest.mark.parametrize(
    ("standings", "complaint"),
    [
        ({JobId("stranger"): Standing(priority=1.0)}, "a standing of job stranger, which is not in the view"),
        ({JobId("x"): Standing(gain=float("nan"))}, "a standing with a number that no message holds"),
        ({JobId("x"): Standing(stay=float("inf"))}, "a standing with a number that no message holds"),
        ({JobId("x"): Standing(priority=-2 * MOST)}, "a standing with a number that no message holds"),
        ({JobId("x"): Standing(priority=-1.0)}, None),
        ({JobId("x"): Standing(priority=-MOST)}, None),
    ],
)
def test_a_standing_fits_a_message_and_is_of_a_job_in_the_view(
    standings: dict[JobId, Standing], complaint: str | None
) -> None:
    seen = view([job("x", (2,))], [node("a0", 2)])
    assert fault(seen, Decision(choices=(), standings=standings)) == complaint


@pytest.mark.parametrize(
    "numbers",
    [
        {"objective": 2 * MOST},
        {"bound": -2 * MOST},
        {"gap": float("nan")},
        {"solve_s": -1.0},
        {"horizon_s": 2 * MOST},
        {"horizon_s": -1.0},
    ],
)
def test_a_number_that_no_message_holds_is_a_fault(numbers: dict[str, float]) -> None:
    seen = view([job("x", (2,))], [node("a0", 2)])
    decision = msgspec.structs.replace(Decision(choices=()), **numbers)
    assert fault(seen, decision) == "a number that no message holds"


@pytest.mark.parametrize(
    "decision",
    [
        Decision(
            choices=(),
            left=(Left(job_id=JobId("x"), reason=Waiting.OUTWEIGHED, detail="a" * (TEXT_LENGTH_MAX + 1)),),
        ),
        Decision(choices=(), measures=Measures(gain="a" * (TEXT_LENGTH_MAX + 1))),
    ],
)
def test_a_text_too_long_for_a_plan_of_many_jobs_is_a_fault(decision: Decision) -> None:
    seen = view([job("x", (2,))], [node("a0", 2)])
    assert fault(seen, decision) == f"a reason or a measure of more than {TEXT_LENGTH_MAX} characters"


@pytest.mark.parametrize("throughput", [-1.0, 2 * MOST, float("inf")])
def test_a_throughput_that_no_message_holds_is_a_fault(throughput: float) -> None:
    seen = view([job("x", (2,))], [node("a0", 2)])
    choice = Choice(
        job_id=JobId("x"), gang=Gang.of(place_on(a0=2)), throughput=throughput, layer=Layer.THEORY
    )
    assert fault(seen, Decision(choices=(choice,))) == "a number that no message holds"


@every_policy
@given(seen=views())
@limits(max_examples=6, deadline=None)
def test_the_same_view_gives_the_same_decision(policy: str, seen: View) -> None:
    assert decide(policy, seen) == decide(policy, seen)


@every_policy
@given(first=views(), then=views())
@limits(max_examples=6, deadline=None)
def test_memory_survives_a_restart_of_the_planner(policy: str, first: View, then: View) -> None:
    """All a policy knows of earlier plans is in the view: one built again decides as the old one would."""
    registry = Registry()
    memory = decide(policy, first, registry=registry).memory
    again = msgspec.structs.replace(then, at=first.at + 60.0, memory=memory)
    assert decide(policy, again, registry=registry) == decide(policy, again)


@every_policy
@given(seen=views())
@limits(max_examples=6, deadline=None)
def test_another_priority_counts_at_the_next_plan(policy: str, seen: View) -> None:
    """What a policy remembers of a job is not the priority that it had."""
    registry = Registry()
    memory = decide(policy, seen, registry=registry).memory
    jobs = [
        msgspec.structs.replace(one, priority=1000.0 if place % 2 else 0.1)
        for place, one in enumerate(seen.jobs)
    ]
    again = msgspec.structs.replace(seen, at=seen.at + 60.0, memory=memory, jobs=tuple(jobs))
    assert decide(policy, again, registry=registry) == decide(policy, again)


@pytest.mark.parametrize(
    "policy", ["hops+window_factor=2", "hopyard", "sia", "gavel", "hadar", "hadare", "hare", "sched-homo"]
)
def test_a_job_whose_priority_is_raised_comes_first(policy: str) -> None:
    """By the policies that weigh jobs, as docs/operating.md lists them."""
    registry = Registry()
    cluster = [msgspec.structs.replace(node("a0", 1, gpus=1), modes=ALL_MODES)]
    seen = view([job("first", (1,)), job("second", (1,))], cluster)
    before = decide(policy, seen, registry=registry)
    assert [choice.job_id for choice in before.choices] == ["first"]
    raised = (seen.jobs[0], msgspec.structs.replace(seen.jobs[1], priority=1000.0))
    again = msgspec.structs.replace(seen, at=seen.at + 2000.0, memory=before.memory, jobs=raised)
    assert [choice.job_id for choice in decide(policy, again, registry=registry).choices] == ["second"]


@every_policy
@given(seen=views(), garbage=st.binary(max_size=30) | st.sampled_from(GARBAGE))
@limits(max_examples=6, deadline=None)
def test_memory_that_makes_no_sense_is_harmless(policy: str, seen: View, garbage: bytes) -> None:
    decision = decide(policy, msgspec.structs.replace(seen, memory=garbage))
    assert fault(seen, decision) is None
    assert mentioned(decision) == sorted(job.job_id for job in seen.jobs)


@every_policy
@given(seen=views())
@limits(max_examples=6, deadline=None)
def test_a_policy_is_called_again_later_or_not_at_all(policy: str, seen: View) -> None:
    again_at = decide(policy, seen).again_at
    assert again_at is None or again_at > seen.at


@every_policy
def test_the_least_priority_beside_the_largest_does_not_keep_a_policy_from_planning(policy: str) -> None:
    jobs = [job(name, (1, 2), priority=one) for name, one in (("least", LEAST_PRIORITY), ("most", 1000.0))]
    seen = view(jobs, [msgspec.structs.replace(node("a0", 3, gpus=4), modes=ALL_MODES)])
    assert decide(policy, seen).choices


@every_policy
@given(seen=views())
@limits(max_examples=6, deadline=None)
def test_a_decision_without_estimates_is_sound(policy: str, seen: View) -> None:
    assert fault(seen, decide(policy, seen, estimator=silent)) is None


@pytest.mark.parametrize("policy", [name for name in names() if name != "hops-literal"])
@pytest.mark.parametrize("kind", list(PlanKind))
def test_a_job_that_only_a_mix_of_types_can_hold_does_not_hold_up_others(policy: str, kind: PlanKind) -> None:
    """It came first and waited longest; whoever never mixes has no configuration of it.

    To the letter of the Hops paper it fills the window all the same, and keeps the others out.
    """
    wide = job("wide", (5,), gpu_types=(FAST, SLOW), wait_s=9_000.0, age_s=10.0)
    others = [job(f"j{index}", (2,), gpu_types=(FAST, SLOW), submitted_at=1.0 + index) for index in range(4)]
    cluster = [node(name, 4, gpus=4, gpu_type=kind) for name, kind in (("a0", FAST), ("b0", SLOW))]
    cluster = [msgspec.structs.replace(one, modes=ALL_MODES) for one in cluster]
    decision = decide(policy, view([wide, *others], cluster, kind=kind))
    assert fault(view([wide, *others], cluster, kind=kind), decision) is None
    if any(one.job_id == wide.job_id for one in decision.choices):
        return
    mixes = decide(policy, view([wide], cluster, kind=kind)).choices
    reason = Waiting.OUTWEIGHED if mixes else Waiting.NO_CONFIGURATION
    assert {left.job_id: left.reason for left in decision.left} == {wide.job_id: reason}


def choice(name: str, **place: int) -> Choice:
    return Choice(
        job_id=job(name).job_id, gang=Gang.of(place_on(**place)), throughput=1.0, layer=Layer.THEORY
    )


@pytest.mark.parametrize(
    ("choices", "complaint"),
    [
        ([choice("x", a0=2), choice("x", a0=2)], "2 configurations for job x"),
        ([choice("stranger", a0=2)], "a configuration for job stranger, which is not in the view"),
        ([choice("x", a0=3)], "job x: 3 GPUs, not one of (2,)"),
        ([choice("x", elsewhere=2)], "job x on node elsewhere"),
        ([choice("x", b0=2)], "job x on node b0"),
        ([choice("x", a0=2), choice("y", a0=2)], "node a0 is over-allocated"),
        ([choice("x", a0=2)], None),
    ],
)
def test_each_broken_rule_is_named(choices: list[Choice], complaint: str | None) -> None:
    seen = view([job("x", (2,)), job("y", (2,))], [node("a0", 3), node("b0", gpu_type=SLOW)])
    assert fault(seen, Decision(choices=tuple(choices))) == complaint


def test_no_job_is_left_out_that_is_not_in_the_view() -> None:
    left = (Left(job_id=JobId("stranger"), reason=Waiting.OUTWEIGHED),)
    complaint = "job stranger is left out, and is not in the view"
    assert fault(view([job("x", (2,))], [node("a0", 2)]), Decision(choices=(), left=left)) == complaint


@pytest.mark.parametrize(("choices", "left"), [(["x"], ["x"]), ([], ["x", "x"])])
def test_a_job_is_placed_or_left_out_and_mentioned_once(choices: list[str], left: list[str]) -> None:
    seen = view([job("x", (2,))], [node("a0", 2)])
    reasons = tuple(Left(job_id=JobId(name), reason=Waiting.OUTWEIGHED) for name in left)
    decision = Decision(choices=tuple(choice(name, a0=2) for name in choices), left=reasons)
    assert fault(seen, decision) == "job x is left out and also placed, or left out twice"


def test_a_policy_is_found_by_name_or_by_module_and_attribute() -> None:
    registry = Registry()
    assert registry.find("fifo") is registry.find("fifo")
    assert type(registry.find(f"{HERE}hops.policy:Hops")) is type(registry.find("hops"))


@pytest.mark.parametrize("name", ["nonsense", "no.such.module:Policy", "services.planner:Nothing"])
def test_an_unknown_policy_is_an_error_that_names_it(name: str) -> None:
    with pytest.raises(UnfitPolicy, match=name.partition(":")[0]):
        Registry().find(name)


def test_reasons_are_those_users_know() -> None:
    decision = decide("hops", view([job("x", (9,))], [node("a0")]), estimator=linear)
    assert decision.left[0].reason == Waiting.NO_CONFIGURATION


@pytest.mark.parametrize("modelled", [False, True])
def test_the_time_of_a_policy_is_taken_from_the_solver_s_budget(
    monkeypatch: pytest.MonkeyPatch,
    modelled: bool,  # noqa: FBT001 - a parameter
) -> None:
    effort = Effort(budget_s=5.0, modelled=modelled)
    seen = view([job("a", [1])], [node("n0")], effort=effort)
    registry = Registry()
    wanted = registry.find("tests.services.planner.planner_policies:Slow").wants(seen)
    step = Decide(
        policy="tests.services.planner.planner_policies:Slow",
        view=seen,
        wanted=wanted,
        estimates=linear(wanted),
    )
    budgets, ours = [], BACKENDS["hopyard"]

    def watched(problem: Problem, asked: Effort) -> Solution:
        budgets.append(asked.budget_s)
        return ours(problem, asked)

    monkeypatch.setitem(BACKENDS, "hopyard", watched)
    assert isinstance(decided_by(registry, step, solving_from_now(effort)), Decision)
    [budget_s, later_s, asked_s] = budgets
    if modelled:
        assert (budget_s, later_s, asked_s) == (5.0, 5.0, 1.0)
    else:
        assert 0.0 < later_s <= budget_s <= 5.0 - Slow.TAKES_S
        assert asked_s == 1.0  # what a policy has taken off by itself is not taken off again


# ---- modes of synchronisation

TWO = Relaxed(tasks=((1, 1),))


def relaxed(name: str, **place: int) -> Choice:
    return msgspec.structs.replace(choice(name, **place), gang=Gang.of(place_on(**place), TWO))


def test_a_mode_that_a_node_does_not_run_is_a_fault() -> None:
    seen = view([job("x", (2,))], [node("a0", 3)])
    decision = Decision(choices=(relaxed("x", a0=2),))
    assert fault(seen, decision) == "node a0 runs no relaxed gangs"
    runs = msgspec.structs.replace(seen.nodes[0], modes=("lockstep", "relaxed"))
    assert fault(msgspec.structs.replace(seen, nodes=(runs,)), decision) is None


@every_policy
def test_a_place_in_a_mode_the_policy_does_not_plan_is_not_kept(policy: str) -> None:
    """Two GPUs with two tasks each train a job that wants four."""
    halved = Gang.of(place_on(a0=2), Relaxed(tasks=((2, 2),)))
    here = msgspec.structs.replace(present(a0=2), gang=halved)
    runs = msgspec.structs.replace(node("a0", 4), modes=("lockstep", "relaxed"))
    seen = view([job("x", (4,), present=here)], [runs])
    decision = decide(policy, seen)
    assert fault(seen, decision) is None
    if Relaxed not in modes_of(Registry().find(policy)):
        assert all(one.gang == Gang.of(place_on(a0=4)) for one in decision.choices)


def test_a_policy_sees_its_own_modes() -> None:
    here = msgspec.structs.replace(present(a0=2), gang=Gang.of(place_on(a0=2), TWO))
    seen = view([job("x", (2,), present=here)], [node("a0", 4)])
    assert seen.in_modes({Relaxed}) is seen
    assert [one.present for one in seen.in_modes({Lockstep}).jobs] == [None]


def test_a_job_that_lacks_a_policy_s_mode_is_not_shown_to_it() -> None:
    """One that stays keeps its GPUs; a policy that looks at modes itself sees all."""
    bound = job("x", (2,), modes=("lockstep",))
    stays = msgspec.structs.replace(bound, job_id=JobId("z"), present=present(a0=2), stays=True)
    whole = view([bound, job("y", (2,)), stays], [node("a0", 4)])
    seen = whole.in_modes({Relaxed})
    assert [one.job_id for one in seen.jobs] == ["y"]
    assert seen.lacking == {"x": "it runs no relaxed gangs"}
    assert [*seen.apart] == [JobId("z")]
    assert [one.idle for one in seen.nodes] == [2]
    assert whole.in_modes({Lockstep}) is whole
    assert [one.job_id for one in whole.in_modes({Lockstep, Relaxed}, by_job=True).jobs] == ["x", "y", "z"]


@pytest.mark.parametrize("policy", ["hare", "hlas", "allox", "jps", "hadare"])
def test_no_job_is_planned_in_a_mode_that_it_lacks(policy: str) -> None:
    """Two nodes of unlike types that run all modes; of two jobs one runs in lockstep alone."""
    every = ("forked", "lockstep", "proportional", "relaxed")
    able = [
        msgspec.structs.replace(node(name, 2, gpus=2, gpu_type=kind), modes=every)
        for name, kind in (("a0", "a"), ("b0", "b"))
    ]
    types = tuple(map(GpuType, "ab"))
    rates = dict(zip(types, (10.0, 30.0), strict=True))
    both = [
        job(name, (1, 2, 4), gpu_types=types, single_gpu=rates, batch_size=4, modes=modes)
        for name, modes in (("bound", ("lockstep",)), ("free", ()))
    ]
    for jobs in (both, both[:1]):
        seen = view(jobs, able)
        decision = decide(policy, seen)
        assert fault(seen, decision) is None
        assert {one.gang.mode for one in decision.choices if one.job_id == "bound"} <= {"lockstep"}
        known = {one.job_id for one in decision.choices} | {one.job_id for one in decision.left}
        assert known == {one.job_id for one in jobs}


def test_a_gang_in_a_mode_that_its_job_lacks_is_a_fault() -> None:
    able = msgspec.structs.replace(node("a0", 4), modes=("lockstep", "relaxed"))
    seen = view([job("x", (2,), modes=("lockstep",))], [able])
    choice = Choice(
        job_id=seen.jobs[0].job_id, gang=Gang.of(place_on(a0=2), TWO), throughput=1.0, layer=Layer.THEORY
    )
    assert fault(seen, Decision(choices=(choice,))) == "job x: runs no relaxed gangs"


def test_a_job_that_stays_in_another_mode_is_kept_apart_with_its_gpus() -> None:
    here = msgspec.structs.replace(present(a0=2), gang=Gang.of(place_on(a0=2), TWO))
    stays = msgspec.structs.replace(job("x", (2,), present=here), stays=True)
    seen = view([stays, job("y", (2,))], [node("a0", 4), node("a1", 4)]).in_modes({Lockstep})
    assert [one.job_id for one in seen.jobs] == ["y"]
    assert seen.apart == {"x": here}
    assert [(one.gpus, one.idle) for one in seen.nodes] == [(8, 2), (8, 4)]


@pytest.mark.parametrize(("held", "closed", "left"), [(2, False, [(2, 2)]), (4, False, []), (2, True, [])])
def test_the_gpus_of_a_job_that_stays_in_another_mode_to_its_end_are_none_of_the_view(
    *, held: int, closed: bool, left: list[tuple[int, int]]
) -> None:
    """Nor those of any job that stays on a closed node."""
    here = msgspec.structs.replace(
        present(a0=held), gang=Gang.of(place_on(a0=held), turning("x", a0=held).gang.sync)
    )
    stays = msgspec.structs.replace(job("x", (held,), present=here), stays=True, preemptible=closed)
    there = msgspec.structs.replace(node("a0", held if closed else 4, gpus=4), closed=closed)
    seen = view([stays, job("y", (2,))], [there]).in_modes({Lockstep})
    assert [(one.gpus, one.idle) for one in seen.nodes] == left


def turning(name: str, turns: int = 1, place: int = 0, share: float = 0.5, **gpus: int) -> Choice:
    """On all of these GPUs, a task each, in the rota `r`."""
    members = Gang.of(place_on(**gpus)).members
    sync = Relaxed(
        tasks=tuple((1,) * one.gpus for one in members), rota=RotaId("r"), turns=turns, place=place
    )
    return Choice(
        job_id=job(name).job_id, gang=Gang(members, sync), throughput=1.0, layer=Layer.THEORY, share=share
    )


@pytest.mark.parametrize(
    ("choices", "complaint"),
    [
        ([turning("x", a0=2), turning("y", place=1, a0=2)], None),
        ([turning("x", turns=0, share=0.0, a0=2), turning("y", share=1.0, a0=2)], None),
        ([turning("x", a0=2), turning("y", place=1, a1=2)], "rota r is on unlike GPUs"),
        ([turning("x", a0=2), turning("y", a0=2)], "in rota r two have the same place"),
        ([turning("x", turns=0, a0=2), turning("y", turns=0, a0=2)], "in rota r no job has a turn"),
        ([turning("x", a0=2), relaxed("y", a0=2)], "node a0 is over-allocated"),
        ([turning("x", share=0.6, a0=2), turning("y", place=1, a0=2)], "shares of 1.1 in rota r a0=2"),
        ([turning("x", share=-0.1, a0=2)], "job x has a share of -0.1 of its GPUs"),
        (
            [msgspec.structs.replace(relaxed("x", a0=2), share=0.5)],
            "job x has a share of 0.5 of its GPUs",
        ),
    ],
)
def test_a_rota_holds_its_gpus_once_and_its_turns_are_sound(
    choices: list[Choice], complaint: str | None
) -> None:
    there = [msgspec.structs.replace(node(name, 3), modes=ALL_MODES) for name in ("a0", "a1")]
    seen = view([job("x", (2,)), job("y", (2,))], there)
    assert fault(seen, Decision(choices=tuple(choices))) == complaint


def test_a_job_needs_the_type_only_where_it_has_tasks() -> None:
    nodes = [node("a0", 1), node("b0", 1, gpu_type=SLOW)]
    seen = view([job("x", (2,))], [msgspec.structs.replace(one, modes=ALL_MODES) for one in nodes])

    def on(*tasks: tuple[int, ...]) -> Decision:
        gang = Gang.of(place_on(a0=1, b0=1), Relaxed(tasks=tasks, rota=RotaId("r")))
        chosen = msgspec.structs.replace(turning("x", a0=1), gang=gang)
        return Decision(choices=(chosen,))

    assert fault(seen, on((2,), (0,))) is None
    assert fault(seen, on((1,), (1,))) == "job x on node b0"


def test_a_job_that_stays_may_take_other_turns_but_no_other_gpus() -> None:
    here = Present(
        placement_id=PlacementId("p"), gang=turning("x", a0=2).gang, throughput=1.0, layer=Layer.THEORY
    )
    stays = msgspec.structs.replace(job("x", (2,), present=here), stays=True)
    there = [msgspec.structs.replace(node(name, 2), modes=ALL_MODES) for name in ("a0", "a1")]
    seen = view([stays], there)
    assert fault(seen, Decision(choices=(turning("x", turns=3, a0=2),))) is None
    moved = Decision(choices=(turning("x", a1=2),))
    assert fault(seen, moved) == "job x is moved, and may not be moved yet"
