"""Views take over what has not changed since the last one, and are the same as views made anew."""

import contextlib
from collections.abc import Sequence

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from schemas.base import Event
from schemas.events import NodeDrained, NodeRemoved, NodeRestored
from schemas.ids import NodeId
from schemas.measurements import TimeModules
from schemas.plans import PlanKind
from services.planner.core.folds import fold
from services.planner.core.state import State
from services.planner.core.viewing import LEAST_PRIORITY, Memo, idle_gpus, view_of
from services.planner.policies.contract.view import View
from tests.fact_builders import (
    V100,
    a_spec,
    completed,
    config,
    held,
    in_queue,
    joined,
    lost,
    opened,
    placement,
    plan,
    preempted,
    priority_changed,
    profile_run,
    profiled,
    queued,
    released,
    returned,
    start_ordered,
    started,
    submitted,
    worker_started,
    worker_stopped,
)
from tests.services.planner.planner_builders import MODELLED

NODES, JOBS = ("node-1", "node-2", "node-3"), ("job-1", "job-2", "job-3")
MODULES = TimeModules(
    data=(), forward_s=0.1, backward_s=0.2, update_s=0.01, parameters=25e6, pattern=1, iterations=30
)
ON_TWO = config(node_1=1, node_2=2)


def a_life(job_id: str, node_id: str, gpus: int) -> list[list[Event]]:
    """What may happen to a job on a node, each step with the facts that come together."""
    place, on = f"{job_id}-{node_id}", {NodeId(node_id): gpus}
    return [
        in_queue(job_id, demand=(1, 2, 3)),
        [plan(placement(job_id, place=place, on=on), kind=PlanKind.FRAGMENT)],
        [worker_started(job_id, place=place, node_id=node_id, gpu_indices=range(gpus))],
        [
            start_ordered(job_id, at=12.0 + gpus, place=place, node_id=node_id),
            started(job_id, at=20.0, place=place, on=on),
        ],
        [priority_changed(job_id, at=25.0, priority=float(gpus)), held(job_id, at=25.0)],
        [preempted(job_id, at=30.0, place=place, samples_done=10.0)],
        [worker_stopped(job_id, place=place, node_id=node_id), released(job_id, at=35.0)],
        [completed(job_id, at=40.0, place=place)],
    ]


def of_nodes() -> list[list[Event]]:
    found: list[Event] = []
    for node in NODES:
        found += [
            joined(node, gpus=4),
            lost(node),
            NodeRemoved(at=0.0, node_id=NodeId(node)),
            returned(node),
            NodeDrained(at=0.0, node_id=NodeId(node)),
            NodeRestored(at=0.0, node_id=NodeId(node)),
            opened(profile_run("job-9", place=f"pf-{node}", node_id=node)),
        ]
    return [[fact] for fact in found]


LIVES = [a_life(job, node, gpus) for job in JOBS for node in NODES for gpus in (1, 3)]
ON_PLANS: list[list[Event]] = [[plan(placement("job-1", place="both", on=ON_TWO))], [plan()]]
OUT_OF_TURN = [*(step for life in LIVES for step in life), *of_nodes(), *ON_PLANS]


@st.composite
def histories(draw: st.DrawFn) -> list[list[Event]]:
    """Mostly the next step of some life, or else anything; no life gets far by chance alone."""
    rest: dict[str, list[list[Event]]] = {}
    steps = []
    for _ in range(draw(st.integers(0, 30))):
        job = draw(st.sampled_from([*JOBS, *JOBS, ""]))
        if job:
            left = rest.get(job) or a_life(job, draw(st.sampled_from(NODES)), draw(st.sampled_from([1, 3])))
            steps.append(left[0])
            rest[job] = left[1:]
        else:
            steps.append(draw(st.sampled_from(OUT_OF_TURN)))
    return steps


def seen(state: State, kind: PlanKind, memo: Memo | None) -> View:
    return view_of(
        state,
        kind=kind,
        at=100.0,
        round_s=360.0,
        restart_s=15.0,
        policy="fifo",
        effort=MODELLED,
        memo=memo,
    )


@given(histories(), st.lists(st.sampled_from(PlanKind), min_size=1, max_size=5))
def test_a_cached_view_is_the_same_as_a_fresh_one(
    steps: Sequence[list[Event]], kinds: Sequence[PlanKind]
) -> None:
    state, memo = State(), Memo()
    for node in NODES[:2]:
        fold(state, joined(node, gpus=4))
    for number, step in enumerate(steps):
        for fact in step:
            with contextlib.suppress(AssertionError):  # a fact that reaches no planner
                fold(state, fact)
        kind = kinds[number % len(kinds)]
        assert seen(state, kind, memo) == seen(state, kind, None)
        idle = idle_gpus(state, memo)
        assert idle == idle_gpus(state) == seen(state, PlanKind.FRAGMENT, None).idle_gpus


def test_a_changed_priority_is_seen_at_once() -> None:
    state, memo = State(), Memo()
    for fact in (joined(NODES[0], gpus=4), *in_queue("job-1", priority=3.0)):
        fold(state, fact)
    found = []
    for priority in (3.0, 5.0, 1e-9):
        fold(state, priority_changed("job-1", priority=priority))
        found += [one.priority for one in seen(state, PlanKind.FIRST, memo).jobs]
    assert found == [3.0, 5.0, LEAST_PRIORITY]


def test_a_job_is_younger_by_the_time_for_which_it_waited_on_hold() -> None:
    state, memo = State(), Memo()
    facts = [joined(NODES[0], gpus=4), *in_queue("job-1"), held("job-1", at=10.0)]
    for fact in facts:
        fold(state, fact)
    assert (seen(state, PlanKind.FIRST, memo).jobs, seen(state, PlanKind.FIRST, memo).jobs_present) == ((), 0)
    for fact in (held("job-1", at=20.0), released("job-1", at=70.0)):
        fold(state, fact)
    [job] = seen(state, PlanKind.FIRST, memo).jobs
    assert (job.submitted_at, job.wait_s) == (60.0, 40.0)


def test_the_expected_restart_time_follows_every_observed_restart() -> None:
    state, memo = State(), Memo()
    fold(state, joined(NODES[0], gpus=4))
    found = []
    for job_id, up_at in (("job-1", 6.0), ("job-2", 26.0)):
        for fact in (*in_queue(job_id), start_ordered(job_id), started(job_id, at=up_at)):
            fold(state, fact)
        found.append(seen(state, PlanKind.FIRST, memo).restarts_s)
        assert found[-1] == seen(state, PlanKind.FIRST, memo).restarts_s
        assert found[-1] == seen(state, PlanKind.FIRST, None).restarts_s
    assert found[0] != found[1]


def test_jobs_that_run_are_present_in_a_fragment_plan_that_does_not_show_them() -> None:
    state = State()
    runs = (plan(placement("job-1")), worker_started("job-1"), start_ordered("job-1"), started("job-1"))
    for fact in (joined(NODES[0], gpus=4), *in_queue("job-1"), *in_queue("job-2"), *runs):
        fold(state, fact)
    found = seen(state, PlanKind.FRAGMENT, None)
    assert ([job.job_id for job in found.jobs], found.jobs_present) == (["job-2"], 2)


def test_a_view_has_the_size_of_gradients_and_the_bandwidths() -> None:
    state = State()
    workload = msgspec.structs.replace(a_spec().workload, dataset_samples=50_000)
    measured = msgspec.structs.replace(profiled("job-1", at=1.0), modules={V100: MODULES})
    for fact in (joined("node-1"), submitted("job-1", workload=workload), measured, queued("job-1", at=2.0)):
        fold(state, fact)
    [job], [node] = seen(state, PlanKind.FIRST, None).jobs, seen(state, PlanKind.FIRST, None).nodes
    assert (job.gradient_bytes, job.epoch_samples) == (100e6, 50_000)
    known = state.nodes[NodeId("node-1")].node
    assert (node.link_bandwidth, node.network_bandwidth) == (known.link_bandwidth, known.network_bandwidth)
