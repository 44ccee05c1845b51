"""From a decision to the plan: what is kept, what is dropped, and who holds the GPUs of those left out."""

from random import Random
from string import ascii_lowercase

import msgspec
import pytest

from schemas.codec import encode
from schemas.events import GpusWithheld, NodeDrained, Outcome, PlacementRefused, PlanPublished
from schemas.ids import JobId, NodeId, PlacementId, PlanId, RotaId
from schemas.placement import Forked, Gang, Relaxed
from schemas.plans import Layer, LeftOut, PlanKind, Standing, Waiting
from schemas.plans import Stage as Made
from services.planner.core.folds import fold
from services.planner.core.publication import (
    NODE_GONE,
    PLAN_BYTES_MAX,
    REFUSED,
    Frame,
    GpusByType,
    chose_changed_nodes,
    published,
)
from services.planner.core.state import State
from services.planner.core.staying import Stays
from services.planner.core.viewing import view_of
from services.planner.policies.contract.decision import Choice, Decision, Left
from shared.runtime.bus.limits import MAX_PAYLOAD_BYTES
from tests.fact_builders import (
    NODE,
    cancelled,
    in_queue,
    joined,
    placement,
    plan,
    worker_stopped,
)
from tests.services.planner.planner_builders import MODELLED
from tests.services.planner.planner_states import MODES, comes_up, on, runs, state_of, there

A, B, C, D, E = (JobId(name) for name in "abcde")
V100, K80 = "v100", "k80"


def choice(
    job_id: JobId, gang: Gang | None = None, *, throughput: float = 10.0, share: float = 1.0
) -> Choice:
    return Choice(job_id=job_id, gang=gang or on(), throughput=throughput, layer=Layer.THEORY, share=share)


def frame_of(
    state: State, *, kind: PlanKind = PlanKind.FIRST, at: float = 400.0, stays: Stays | None = None
) -> Frame:
    view = view_of(
        state,
        kind=kind,
        at=400.0,
        round_s=360.0,
        restart_s=15.0,
        policy="hops",
        effort=MODELLED,
        staying=(stays or Stays()).placements,
    )
    return Frame(
        view=view,
        policy="hops",
        token=7,
        made_from=12,
        at=at,
        notes=("one",),
        node_facts=state.node_facts,
    )


def made(
    state: State, *choices: Choice, frame: Frame | None = None, left: tuple[Left, ...] = ()
) -> PlanPublished:
    return published(state, frame or frame_of(state), Decision(choices=choices, left=left))


def stays_in(state: State, job_id: JobId) -> Stays:
    return Stays({job_id: there(state, job_id)})


# ---- a plan


def test_a_plan_says_what_it_was_made_from_and_how() -> None:
    state = state_of(A)
    decision = Decision(
        choices=(choice(A, on(2)),),
        stage=Made.OPTIMAL,
        objective=3.0,
        bound=4.0,
        gap=0.25,
        solve_s=0.5,
        configurations=9,
        notes=("two",),
        memory=b"memory",
        horizon_s=70.0,
    )
    plan = published(state, frame_of(state, at=401.5), decision)
    assert (plan.at, plan.plan_id, plan.kind, plan.round) == (401.5, "plan-1-7-0", PlanKind.FIRST, 1)
    assert (plan.policy, plan.token, plan.made_from) == ("hops", 7, 12)
    assert (plan.stage, plan.objective, plan.bound, plan.gap) == (Made.OPTIMAL, 3.0, 4.0, 0.25)
    assert (plan.solve_s, plan.decision_s, plan.configurations) == (0.5, 1.5, 9)
    assert (plan.notes, plan.memory, plan.horizon_s) == (("one", "two"), b"memory", 70.0)
    assert (plan.idle_gpus, plan.left_out) == (6, ())
    assert [each.placement_id for each in plan.placements] == ["a-7-0"]


def test_a_plan_never_took_less_than_no_time() -> None:
    state = state_of(A)
    assert made(state, frame=frame_of(state, at=399.0)).decision_s == 0.0


def test_the_ids_of_two_plans_of_one_leader_are_unlike() -> None:
    state = state_of(A, B)
    first = made(state, choice(A))
    fold(state, first)
    second = made(state, choice(A), choice(B))
    assert second.plan_id == "plan-1-7-1"
    assert [each.placement_id for each in second.placements] == ["a-7-0", "b-7-1"]


def test_a_plan_may_use_every_idle_gpu_and_no_more() -> None:
    state = state_of(A)
    assert made(state, choice(A, on(8))).idle_gpus == 0
    with pytest.raises(AssertionError, match="9 GPUs given of 8"):
        made(state, choice(A, on(9)))


def test_a_plan_mentions_a_job_once() -> None:
    state = state_of(A)
    for left in ((A,), (B, B)):
        with pytest.raises(AssertionError, match="mentions a job once"):
            made(
                state,
                choice(A),
                left=tuple(Left(job_id=job_id, reason=Waiting.OUTWEIGHED) for job_id in left),
            )


# ---- what changed while it was made


def test_a_job_that_ended_while_the_plan_was_made_is_in_no_plan() -> None:
    state = state_of(A, B, C)
    frame = frame_of(state)
    for job_id in (A, C):
        fold(state, cancelled(job_id))
    plan = made(state, choice(A), choice(B), frame=frame, left=(Left(job_id=C, reason=Waiting.OUTWEIGHED),))
    assert [each.job_id for each in plan.placements] == [B]
    assert plan.left_out == ()


def test_a_job_whose_node_drains_while_the_plan_is_made_is_left_out() -> None:
    state = state_of(A, B, C, nodes=2)
    frame = frame_of(state)
    fold(state, NodeDrained(at=400.0, node_id=NodeId(NODE)))
    both = Gang.of({NodeId(NODE): 1, NodeId("node-2"): 1})
    plan = made(state, choice(A, on(1)), choice(B, on(2, "node-2")), choice(C, both), frame=frame)
    assert [each.job_id for each in plan.placements] == [B]
    assert plan.left_out == tuple(
        LeftOut(job_id=job_id, reason=Waiting.NO_CONFIGURATION, detail=NODE_GONE, held_by=(B,))
        for job_id in (A, C)
    )


def test_a_node_that_only_joined_while_the_plan_was_made_takes_nothing_from_it() -> None:
    state = state_of(A)
    frame = frame_of(state)
    fold(state, joined("node-2"))
    assert len(made(state, choice(A), frame=frame).placements) == 1


def test_a_job_whose_node_comes_back_with_another_type_while_the_plan_is_made_is_left_out() -> None:
    state = state_of(A, B, nodes=2)
    frame = frame_of(state)
    fold(state, joined(gpu_type=K80, life="2", modes=MODES))
    chosen = (choice(A, on(1)), choice(B, on(1, "node-2")))
    plan = made(state, *chosen, frame=frame)
    assert [each.job_id for each in plan.placements] == [B]
    assert [(each.job_id, each.detail) for each in plan.left_out] == [(A, NODE_GONE)]
    assert chose_changed_nodes(state, frame.view, Decision(choices=chosen))


def test_a_node_that_lost_gpus_while_the_plan_was_made_keeps_its_jobs_and_takes_no_new_one() -> None:
    state = state_of(A, B, C, nodes=2)
    runs(state, A, on(4), "pl-a")
    frame = frame_of(state)
    fold(state, GpusWithheld(at=400.0, node_id=NodeId(NODE), gpus=dict.fromkeys(range(5), "broken")))
    plan = made(state, choice(A, on(4)), choice(B, on(4)), choice(C, on(4, "node-2")), frame=frame)
    assert [each.job_id for each in plan.placements] == [A, C]
    assert [(each.job_id, each.detail) for each in plan.left_out] == [(B, NODE_GONE)]


def test_a_node_that_has_enough_gpus_still_takes_the_jobs_planned_for_it() -> None:
    state = state_of(A)
    frame = frame_of(state)
    fold(state, GpusWithheld(at=400.0, node_id=NodeId(NODE), gpus={0: "broken"}))
    assert len(made(state, choice(A, on(4)), frame=frame).placements) == 1


# ---- jobs that run


def test_a_job_whose_place_and_terms_are_the_same_keeps_its_placement() -> None:
    state = state_of(A)
    runs(state, A, on(4), "pl-a")
    [kept] = made(state, choice(A, on(4))).placements
    assert kept is state.claims.placement_of(A)


@pytest.mark.parametrize("terms", [{"throughput": 12.0}, {"throughput": 8.0}, {"share": 0.5}])
def test_a_job_with_new_terms_keeps_its_placements_id(terms: dict[str, float]) -> None:
    state = state_of(A)
    runs(state, A, on(4), "pl-a")
    [kept] = made(state, choice(A, on(4), **terms)).placements
    assert kept.placement_id == "pl-a"
    assert kept.gang == on(4)
    assert (kept.throughput, kept.share) == (terms.get("throughput", 10.0), terms.get("share", 1.0))


def test_a_job_with_another_gang_gets_another_placement() -> None:
    state = state_of(A)
    runs(state, A, on(4), "pl-a")
    [moved] = made(state, choice(A, on(8))).placements
    assert (moved.placement_id, moved.gang) == ("a-7-1", on(8))


def test_a_job_that_has_to_stay_and_is_not_shown_is_kept() -> None:
    state = state_of(A, B)
    runs(state, A, on(4), "pl-a")
    frame = frame_of(state, stays=stays_in(state, A))
    assert list(frame.view.apart) == [A]
    plan = made(state, choice(B, on(4)), frame=frame)
    assert [(each.job_id, each.placement_id) for each in plan.placements] == [(B, "b-7-1"), (A, "pl-a")]
    assert plan.placements[1] is state.claims.placement_of(A)
    assert plan.idle_gpus == 0


def test_a_job_that_has_to_stay_is_not_kept_against_a_decision_that_mentions_it() -> None:
    state = state_of(A)
    runs(state, A, on(4), "pl-a")
    frame = frame_of(state, stays=stays_in(state, A))
    left = (Left(job_id=A, reason=Waiting.OUTWEIGHED),)
    assert made(state, frame=frame, left=left).placements == ()
    assert [each.gang for each in made(state, choice(A, on(4)), frame=frame).placements] == [on(4)]


COPIES = Gang.of({NodeId("node-1"): 4, NodeId("node-2"): 4}, Forked(shares=(0.5, 0.5)))


@pytest.mark.parametrize(("held", "place"), [(True, "pl-a"), (False, "a-7-1")])
def test_a_gang_of_copies_is_kept_only_where_the_job_has_to_stay(held: bool, place: str) -> None:  # noqa: FBT001
    state = state_of(A, nodes=2)
    runs(state, A, COPIES, "pl-a")
    frame = frame_of(state, stays=stays_in(state, A) if held else None)
    plan = made(state, choice(A, Gang(COPIES.members, COPIES.sync)), frame=frame)
    assert [each.placement_id for each in plan.placements] == [place]


def test_copies_that_end_while_the_plan_is_made_are_not_in_it() -> None:
    state = state_of(A, B, nodes=2)
    runs(state, A, COPIES, "pl-a")
    frame = frame_of(state, stays=stays_in(state, A))
    fold(state, worker_stopped(A, at=399.0, place="pl-a", node_id="node-2", outcome=Outcome.QUOTA))
    left = state.claims.placement_of(A)
    assert left is not None
    assert left.gang.nodes == (NODE,)
    assert made(state, choice(B, on(4)), frame=frame).placements[1] is left


@pytest.mark.parametrize("place", ["pl-0", "pl-b"])
def test_a_placement_that_ended_while_the_plan_was_made_is_not_taken_for_the_present_one(place: str) -> None:
    state = state_of(A, nodes=2)
    runs(state, A, COPIES, "pl-a")
    frame = frame_of(state, stays=stays_in(state, A))
    other = Gang.of({NodeId(NODE): 4}, Forked(shares=(1.0,)))
    newer = msgspec.structs.replace(placement(A, place=place), gang=other)
    fold(state, plan(newer, kind=PlanKind.FIRST, plan_id=PlanId("newer")))
    assert [each.gang for each in made(state, frame=frame).placements] == [COPIES]


def turning(*tasks: int, turns: int = 1) -> Gang:
    return Gang.of({NodeId(NODE): len(tasks)}, Relaxed(tasks=(tasks,), rota=RotaId("rota-1"), turns=turns))


BEFORE = turning(2, 1, 2)
OTHER_TURNS = turning(2, 1, 2, turns=3)
OTHER_TASKS = turning(1, 2, 2, turns=3)
LATER_TASKS = turning(2, 2, 1, turns=3)


@pytest.mark.parametrize(
    ("wanted", "commands", "held", "expected"),
    [
        (OTHER_TURNS, False, False, ("pl-a", OTHER_TURNS)),
        (OTHER_TURNS, True, False, ("pl-a", OTHER_TURNS)),
        (OTHER_TASKS, False, False, ("pl-a", OTHER_TASKS)),
        (OTHER_TASKS, True, False, ("a-7-1", OTHER_TASKS)),
        (OTHER_TASKS, True, True, ("pl-a", OTHER_TURNS)),
        (LATER_TASKS, True, False, ("a-7-1", LATER_TASKS)),
    ],
)
def test_a_job_goes_on_in_other_turns_and_with_other_tasks_where_it_has_no_processes(
    wanted: Gang,
    commands: bool,  # noqa: FBT001
    held: bool,  # noqa: FBT001
    expected: tuple[str, Gang],
) -> None:
    """The tasks of processes are fixed when they start; one that has to stay keeps its tasks."""
    state = state_of(A)
    fold(state, msgspec.structs.replace(joined(modes=MODES), runs_commands=commands))
    runs(state, A, BEFORE, "pl-a")
    frame = frame_of(state, stays=stays_in(state, A) if held else None)
    [found] = made(state, choice(A, wanted), frame=frame).placements
    assert (found.placement_id, found.gang) == expected


# ---- jobs left out


def test_a_job_left_out_names_the_three_with_most_gpus_of_its_types() -> None:
    state = state_of(A, B, C, D, E)
    choices = (choice(A, on(1)), choice(B, on(2)), choice(C, on(4)), choice(D, on(1)))
    left = (Left(job_id=E, reason=Waiting.OUTWEIGHED, detail="so it is"),)
    plan = made(state, *choices, left=left)
    assert plan.left_out == (
        LeftOut(job_id=E, reason=Waiting.OUTWEIGHED, detail="so it is", held_by=(C, B, A)),
    )


def two_types() -> State:
    """Jobs a, b and c on v100 and k80, d on k80 alone, e on a third."""
    state = State()
    fold(state, joined(NODE))
    fold(state, joined("node-2", gpu_type=K80))
    for job_id, types in ((A, (V100, K80)), (B, (V100, K80)), (C, (V100, K80)), (D, (K80,)), (E, ("t4",))):
        *before, queued = in_queue(job_id)
        for fact in before:
            fold(state, fact)
        fold(state, msgspec.structs.replace(queued, single_gpu=dict.fromkeys(types, 1.0)))
    return state


def test_only_gpus_of_types_that_the_job_can_use_count() -> None:
    state = two_types()
    choices = (choice(A, on(4)), choice(B, Gang.of({NodeId(NODE): 3, NodeId("node-2"): 2})))
    left = tuple(Left(job_id=job_id, reason=Waiting.OUTWEIGHED) for job_id in (C, D, E))
    assert [each.held_by for each in made(state, *choices, left=left).left_out] == [(B, A), (B,), ()]


@pytest.mark.parametrize(
    ("of_a", "of_b", "order"),
    [((1, 4), (5, 0), (A, B)), ((1, 2), (4, 0), (B, A)), ((3, 0), (2, 1), (A, B))],
)
def test_gpus_of_several_types_are_added_up(
    of_a: tuple[int, int], of_b: tuple[int, int], order: tuple[JobId, ...]
) -> None:
    """Jobs with as many are named in the order of their ids."""
    choices = [
        choice(
            job_id, Gang.of({NodeId(f"node-{number}"): gpus for number, gpus in enumerate(own, 1) if gpus})
        )
        for job_id, own in ((A, of_a), (B, of_b))
    ]
    [left] = made(two_types(), *choices, left=(Left(job_id=C, reason=Waiting.OUTWEIGHED),)).left_out
    assert left.held_by == order


def test_running_jobs_hold_gpus_that_a_fragment_plan_does_not_give() -> None:
    state = state_of(A, B, C)
    runs(state, A, on(2), "pl-a")
    frame = frame_of(state, kind=PlanKind.FRAGMENT)
    left = (Left(job_id=C, reason=Waiting.OUTWEIGHED),)
    plan = made(state, choice(B, on(4)), frame=frame, left=left)
    assert [each.held_by for each in plan.left_out] == [(B, A)]
    assert plan.idle_gpus == 2
    first = made(state, choice(B, on(4)), left=(*left, Left(job_id=A, reason=Waiting.OUTWEIGHED)))
    assert [each.held_by for each in first.left_out] == [(B,), (B,)]


def refuse(state: State, job_id: JobId, times: int) -> None:
    for number in range(times):
        place = placement(job_id, place=f"pl-{number}")
        fold(state, plan(place, kind=PlanKind.FRAGMENT, plan_id=PlanId(f"plan-{number}")))
        refused = PlacementRefused(
            at=399.0,
            placement_id=PlacementId(f"pl-{number}"),
            plan_id=PlanId(f"plan-{number}"),
            job_id=job_id,
            reason="no",
        )
        fold(state, refused)


def test_a_first_plan_leaves_out_a_job_that_was_refused_several_times_in_a_row() -> None:
    state = state_of(A, B)
    refuse(state, A, 8)
    assert state.jobs[A].put_off_until > 400.0
    plan = made(state, choice(B))
    assert plan.left_out == (
        LeftOut(job_id=A, reason=Waiting.NO_CONFIGURATION, detail=REFUSED, held_by=(B,)),
    )
    assert made(state, frame=frame_of(state, kind=PlanKind.FRAGMENT)).left_out == ()


def test_a_refused_job_that_comes_up_by_now_is_mentioned_once() -> None:
    state = state_of(A)
    refuse(state, A, 8)
    comes_up(state, A, on(2), "pl-a", at=399.0)
    assert state.jobs[A].put_off_until > 400.0
    plan = made(state, frame=frame_of(state, stays=stays_in(state, A)))
    assert [each.placement_id for each in plan.placements] == ["pl-a"]
    assert plan.left_out == ()


def test_a_job_that_came_while_the_plan_was_made_is_not_mentioned() -> None:
    state = state_of(A)
    frame = frame_of(state)
    for fact in in_queue(B):
        fold(state, fact)
    assert made(state, choice(A), frame=frame).left_out == ()


# ---- the cache of GPUs by type


def test_the_stored_gpus_of_ended_jobs_are_forgotten_once_they_are_most() -> None:
    state, known = state_of(), GpusByType()
    gangs = {JobId(f"job-{number}"): on() for number in range(101)}
    first = dict(known.of(state, gangs.items()))
    again = dict(known.of(state, [(JobId("job-0"), gangs[JobId("job-0")])]))
    assert first[JobId("job-0")] == again[JobId("job-0")] == {V100: 1}
    assert first[JobId("job-0")] is not again[JobId("job-0")]


def test_a_plan_too_large_for_a_message_goes_without_its_explanations() -> None:
    """A queue of ten thousand jobs with the longest names."""
    random = Random(1)
    names = ["".join(random.choices(ascii_lowercase, k=63)) + f"-{n}" for n in range(9_900)]
    state = state_of(*map(JobId, names))
    left = tuple(
        Left(job_id=JobId(name), reason=Waiting.OUTWEIGHED, detail=f"outweighed by {random.random()}")
        for name in names
    )
    standings = {JobId(name): Standing(priority=random.random(), gain=random.random()) for name in names}
    decision = Decision(choices=(), left=left, standings=standings, memory=random.randbytes(400_000))
    made = published(state, frame_of(state), decision)
    assert len(encode(made)) <= PLAN_BYTES_MAX < MAX_PAYLOAD_BYTES
    assert (made.standings, made.memory) == ({}, decision.memory)
    assert [one.job_id for one in made.left_out] == names
    assert made.notes[-2:] == (
        "too large for a message, so it is without standings",
        "too large for a message, so it is without reasons",
    )
    small = published(state_of(A), frame_of(state_of(A)), Decision(choices=()))
    assert small.notes == frame_of(state_of(A)).notes
