"""What a job still needs, type by type: measured, tried, wanted, waited for, or given up."""

import pytest

from schemas.events import NodeDrained, ProfileRun
from schemas.ids import Fingerprint, GpuType, JobId, NodeId, PlacementId
from schemas.measurements import TimeModules
from services.profiler.needs import Needs, needs_of, types_of
from services.profiler.state import Exclusion, KnownJob, PendingRun, State
from shared.domain.nodes import fold_node, known_node
from tests.services.profiler.profiler_builders import joined, lost, measurement, spec, workload

A, B, C = GpuType("A"), GpuType("B"), GpuType("C")
OURS = workload().fingerprint
THEIRS = Fingerprint("theirs")
MODULES = TimeModules(
    data=(), forward_s=1.0, backward_s=1.0, update_s=1.0, parameters=1.0, pattern=1, iterations=1
)
NO_NODE = "no node of this type can take a measurement"


def state_of(**types: str) -> State:
    """Nodes by name, each of a type."""
    state = State(round=0)
    for node_id, gpu_type in types.items():
        fold_node(state.nodes, joined(node_id, gpu_type), known_node)
    return state


def drain(state: State, *nodes: str) -> None:
    for node_id in nodes:
        fold_node(state.nodes, NodeDrained(at=1.0, node_id=NodeId(node_id)), known_node)


def lose(state: State, *nodes: str) -> None:
    for node_id in nodes:
        fold_node(state.nodes, lost(node_id), known_node)


def job(*gpu_types: str, **fields: object) -> KnownJob:
    made = KnownJob(spec=spec(gpu_types=gpu_types), fingerprint=OURS)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def needs(
    state: State, one: KnownJob, *, fits: dict[GpuType, TimeModules] | None = None, patience: int = 3
) -> Needs:
    found = {(OURS, gpu_type): modules for gpu_type, modules in (fits or {}).items()}
    return needs_of(one, state, found, types_of(state), patience)


def test_types_are_those_of_all_nodes_and_open_those_that_may_start_something() -> None:
    state = state_of(n1="B", n2="A", n3="A", n4="C")
    drain(state, "n2")
    lose(state, "n4")
    types = types_of(state)
    assert types.seen == (A, B, C)
    assert types.open == types.alive == frozenset({A, B})
    drain(state, "n3")
    assert (types_of(state).open, types_of(state).alive) == (frozenset({B}), frozenset({A, B}))


def test_the_type_of_removed_nodes_is_none() -> None:
    state = state_of(n1="B", n2="A", n3="A")
    lose(state, "n2", "n3")
    state.nodes[NodeId("n2")].removed = True
    assert types_of(state).seen == (A, B)
    state.nodes[NodeId("n3")].removed = True
    assert types_of(state).seen == (B,)


def test_a_job_that_names_no_type_wants_all_that_were_seen() -> None:
    found = needs(state_of(n1="B", n2="A"), job())
    assert (found.wanted, found.usable, found.excluded, found.failed, found.pending) == (
        (A, B),
        {},
        {},
        False,
        False,
    )
    assert not found.settled
    assert needs(state_of(n1="B", n2="A"), job("B")).wanted == (B,)


def test_what_was_measured_is_usable_once_it_is_published_or_fitted() -> None:
    state = state_of(n1="A", n2="B", n3="C")
    state.modules = {OURS: {A: MODULES}, THEIRS: {C: MODULES}}
    found = needs(state, job(), fits={B: MODULES})
    assert (found.usable, found.wanted) == ({A: MODULES, B: MODULES}, (C,))


def test_a_measurement_that_is_not_fitted_yet_is_waited_for() -> None:
    state = state_of(n1="A")
    state.raw = {OURS: {A: measurement()}}
    found = needs(state, job())
    assert (found.pending, found.wanted, found.settled) == (True, (), False)
    state.raw = {THEIRS: {A: measurement()}}
    assert needs(state, job()).wanted == (A,)


def test_a_type_on_which_the_job_or_its_workload_failed_is_excluded() -> None:
    state = state_of(n1="A", n2="B", n3="C")
    state.unfit = {OURS: {B: "too old"}, THEIRS: {C: "too new"}}
    found = needs(state, job(excluded={A: Exclusion("out of memory", whole_workload=True)}))
    assert found.excluded == {A: "out of memory", B: "too old"}
    assert (found.failed, found.wanted, found.pending) == (True, (C,), False)
    settled = needs(state, job("A", "B", excluded={A: Exclusion("out of memory", whole_workload=True)}))
    assert settled.settled


# ---- types without an open node


@pytest.mark.parametrize(("rounds", "pending"), [(0, True), (2, True), (3, False), (4, False)])
def test_a_type_that_the_job_names_is_waited_for_during_its_patience(rounds: int, pending: bool) -> None:  # noqa: FBT001
    state = state_of(n1="A")
    lose(state, "n1")
    for named in (("A",), ()):  # it names the type, or can use no other
        found = needs(state, job(*named, rounds_without_node={A: rounds}))
        assert (found.excluded, found.wanted, found.failed) == ({A: NO_NODE}, (), False)
        assert found.pending is pending


def test_a_type_is_waited_for_from_the_first_round_on_unless_there_is_no_patience() -> None:
    state = state_of(n1="A")
    lose(state, "n1")
    assert needs(state, job("A"), patience=1).pending
    assert needs(state, job("A"), patience=0).settled


@pytest.mark.parametrize("fails", [False, True])
def test_a_job_that_can_use_no_other_type_waits_while_nodes_of_it_are_drained(*, fails: bool) -> None:
    """However long, and even if it failed on all others."""
    state = state_of(n1="A", n2="B")
    drain(state, "n1")
    excluded = {B: Exclusion("out of memory", whole_workload=True)} if fails else {}
    one = job(*([] if fails else ["A"]), excluded=excluded, rounds_without_node={A: 100})
    assert needs(state, one).pending
    lose(state, "n1")
    assert needs(state, one).settled
    assert needs(state, one).failed is fails


def test_a_job_waits_for_no_type_that_it_does_not_name_if_it_can_use_another() -> None:
    state = state_of(n1="A", n2="B")
    drain(state, "n1")
    state.modules = {OURS: {B: MODULES}}
    found = needs(state, job())
    assert (found.excluded, found.pending, found.settled) == ({A: NO_NODE}, False, True)
    assert needs(state, job("A", "B")).pending


def test_one_type_that_is_waited_for_is_enough() -> None:
    state = state_of(n1="A", n2="B")
    drain(state, "n1", "n2")
    found = needs(state, job("A", "B", rounds_without_node={B: 3}))
    assert (found.pending, list(found.excluded)) == (True, [A, B])


# ---- programs that are missing


def runs(state: State, gpu_type: GpuType, *, fingerprint: Fingerprint = OURS, failure: str = "") -> None:
    plan = ProfileRun(
        placement_id=PlacementId("p1"), job_id=JobId("j1"), gpu_type=gpu_type, node_id=NodeId("n1")
    )
    pending = PendingRun(plan=plan, fingerprint=fingerprint, planned_at=0.0, failure=failure)
    state.runs = {plan.placement_id: pending}


def lacking(*nodes: str) -> dict[NodeId, str]:
    return {NodeId(node_id): f"no train.py on {node_id}" for node_id in nodes}


def test_a_program_that_two_nodes_lack_is_missing_on_every_type() -> None:
    state = state_of(n1="A", n2="A", n3="A", n4="B", n5="B")
    assert needs(state, job(absent=lacking("n1"))).wanted == (A, B)
    found = needs(state, job(absent=lacking("n2", "n1")))
    assert found.excluded == dict.fromkeys((A, B), "on n1, n2: no train.py on n2")
    assert (found.failed, found.wanted) == (True, ())
    assert list(needs(state, job(absent=lacking("n1", "n2", "n4"))).excluded) == [A, B]
    across = needs(state, job(absent=lacking("n1", "n4")))
    assert list(across.excluded) == [A, B]


def test_for_a_job_that_was_measured_only_nodes_of_the_type_count() -> None:
    state = state_of(n1="A", n2="A", n3="A", n4="B", n5="B", n6="B")
    found = needs(state, job(measured=True, absent=lacking("n1", "n2", "n4")))
    assert (list(found.excluded), found.wanted) == ([A], (B,))


def test_a_program_that_all_open_nodes_of_a_type_lack_is_missing_there() -> None:
    state = state_of(n1="A", n2="A", n3="B")
    drain(state, "n2")
    found = needs(state, job(absent=lacking("n1")))
    assert (list(found.excluded), found.wanted) == ([A], (B,))
    state = state_of(n1="A", n2="A", n3="B")
    assert needs(state, job(absent=lacking("n1"))).wanted == (A, B)


def test_nodes_of_other_types_that_lack_it_too_change_nothing_of_that() -> None:
    state = state_of(n1="A", n2="B", n3="B")
    found = needs(state, job(measured=True, absent=lacking("n1", "n2")))
    assert (list(found.excluded), found.wanted) == ([A], (B,))


def test_a_type_without_an_open_node_is_away_and_not_without_the_program() -> None:
    state = state_of(n1="A", n2="B", n3="B")
    drain(state, "n1")
    assert needs(state, job(absent=lacking("n2"))).excluded == {A: NO_NODE}


def test_while_a_node_of_the_type_measures_the_workload_its_program_is_not_missing() -> None:
    one = job(absent=lacking("n2", "n3"))
    for run, excluded in (
        ({"gpu_type": A}, [B]),
        ({"gpu_type": B}, [A]),
        ({"gpu_type": A, "failure": "no train.py"}, [A, B]),
        ({"gpu_type": A, "fingerprint": THEIRS}, [A, B]),
        ({"gpu_type": A, "fingerprint": Fingerprint("")}, [A, B]),
    ):
        state = state_of(n1="A", n2="A", n3="B")
        runs(state, **run)
        assert list(needs(state, one).excluded) == excluded
