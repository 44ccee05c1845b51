from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.events import PreemptReason
from schemas.ids import JobId, NodeId, PlacementId, PlanId
from schemas.placement import Gang
from schemas.plans import Cause
from services.placer.phases import (
    MOVES,
    ComingUp,
    Ending,
    IllegalMove,
    Measuring,
    Owed,
    Phase,
    Training,
    Waiting,
    WorkerState,
)
from services.placer.state import Placed, State

WORKERS = {NodeId("a"): WorkerState.UP}
PHASES: list[Phase] = [
    Waiting(),
    ComingUp(workers=WORKERS),
    Training(workers=WORKERS),
    Measuring(workers=WORKERS),
    Ending(why=PreemptReason.PLAN, owed=Owed.PREEMPTION, workers=WORKERS),
]


def placed(phase: Phase, *, profile: bool = False) -> Placed:
    return Placed(
        placement_id=PlacementId("p"),
        job_id=JobId("j"),
        plan_id=PlanId("plan"),
        gang=Gang.of({NodeId("a"): 1}),
        profile=profile,
        phase=phase,
    )


def test_every_phase_is_in_the_table() -> None:
    assert set(MOVES) == set(get_args(Phase)) == {type(phase) for phase in PHASES}


@given(st.sampled_from(PHASES), st.sampled_from(PHASES))
def test_a_move_that_is_not_in_the_table_raises_and_changes_nothing(before: Phase, after: Phase) -> None:
    one = placed(before)
    if type(after) in MOVES[type(before)]:
        one.move(after)
        assert one.phase is after
    else:
        with pytest.raises(IllegalMove, match=f"{type(before).__name__} → {type(after).__name__}"):
            one.move(after)
        assert one.phase is before


@pytest.mark.parametrize(
    ("phase", "owed"),
    [
        (PHASES[0], Owed.REFUSAL),
        (PHASES[1], Owed.REFUSAL),
        (PHASES[2], Owed.PREEMPTION),
        (PHASES[3], Owed.NOTHING),
    ],
)
def test_the_fact_owed_at_the_end_of_a_placement_depends_on_its_phase(phase: Phase, owed: Owed) -> None:
    one = placed(phase, profile=isinstance(phase, Measuring))
    State().stop(one, PreemptReason.NODE_LOST)
    assert one.phase == Ending(why=PreemptReason.NODE_LOST, owed=owed, workers=one.workers)


def test_the_first_reason_to_end_is_kept_and_the_end_of_the_job_owes_no_fact() -> None:
    state, one = State(), placed(Training(workers=WORKERS))
    state.stop(one, PreemptReason.NODE_LOST)
    state.stop(one, PreemptReason.PLAN)
    state.stop_silently(one)
    assert one.phase == Ending(why=PreemptReason.NODE_LOST, owed=Owed.NOTHING, workers=WORKERS)


@pytest.mark.parametrize("why", list(PreemptReason))
def test_a_first_failure_counts_whatever_ended_the_placement_before(why: PreemptReason) -> None:
    state, one = State(), placed(Training(workers=WORKERS))
    state.stop(one, why)
    assert state.fail(one, Cause()) is (why is not PreemptReason.FAILED)
    assert not state.fail(one, Cause())
