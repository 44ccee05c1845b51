"""Any cluster and queue that a policy may be shown, and of whom its decision speaks."""

import msgspec
from hypothesis import strategies as st

from schemas.ids import PlacementId
from schemas.placement import ONLY_LOCKSTEP, Configuration, Forked, Gang, Lockstep, Proportional, Relaxed
from schemas.plans import Layer, PlanKind
from services.planner.policies.contract.decision import Decision
from services.planner.policies.contract.view import Present, View, ViewJob, ViewNode
from tests.services.planner.planner_builders import FAST, SLOW, job, node, view

ALL_MODES = tuple(mode.tag() for mode in (Lockstep, Proportional, Relaxed, Forked))

TYPES = st.sampled_from([FAST, SLOW])
NODES, JOBS, IDLE = st.integers(0, 5), st.integers(0, 6), st.integers(0, 4)
MODES, KINDS = st.sampled_from([ONLY_LOCKSTEP, ALL_MODES]), st.sampled_from(list(PlanKind))
DEMANDS = st.sets(st.integers(1, 8), min_size=1, max_size=4)
TYPE_SETS, EITHER, PROJECTS = st.sets(TYPES), st.booleans(), st.sampled_from(["default", "other"])
UP_TO_3, UP_TO_1000 = st.floats(1.0, 3.0), st.floats(0.0, 1000.0)
AGES, ATTAINED = st.floats(1.0, 1000.0), st.floats(0.0, 10_000.0)
"""each is made once: to make and check a strategy takes longer than to draw from it"""


@st.composite
def views(draw: st.DrawFn) -> View:
    cluster = [_node(draw, f"n{index}") for index in range(draw(NODES))]
    modes = draw(MODES)
    cluster = [msgspec.structs.replace(one, modes=modes) for one in cluster]
    kind = draw(KINDS)
    jobs = [_job(draw, index, cluster, kind) for index in range(draw(JOBS))]
    return view(jobs, [one for one in cluster if one.gpus], kind=kind)  # a job may be on a node that drains


def _node(draw: st.DrawFn, name: str) -> ViewNode:
    """Of 4 GPUs; or of its idle ones, maybe none: jobs outside the view keep the others to their end."""
    idle = draw(IDLE)
    return node(name, idle, gpus=idle if draw(EITHER) else 4, gpu_type=draw(TYPES))


def _job(draw: st.DrawFn, index: int, cluster: list[ViewNode], kind: PlanKind) -> ViewJob:
    demand = sorted(draw(DEMANDS))
    types = tuple(sorted(draw(TYPE_SETS)))
    own = [member for member in cluster if member.gpu_type in types]
    here = None
    if kind == PlanKind.FIRST and own and draw(EITHER):
        here = Present(
            placement_id=PlacementId(f"p{index}"),
            gang=_gang(draw, demand, own),
            throughput=1.0,
            layer=Layer.TYPE,
        )
    return job(
        f"j{index}",
        demand,
        gpu_types=types,
        sensitivity=draw(UP_TO_3),
        wait_s=draw(UP_TO_1000),
        age_s=draw(AGES),
        attained_gpu_s=draw(ATTAINED),
        samples_done=draw(UP_TO_1000),
        project=draw(PROJECTS),
        submitted_at=float(index),
        present=here,
    )


def _gang(draw: st.DrawFn, demand: list[int], own: list[ViewNode]) -> Gang:
    """In lockstep; or relaxed on nodes that run such, a task for each GPU and some more for the first."""
    place = _place(draw, demand, own)
    runs = all(Relaxed.tag() in one.modes for one in own)
    if not runs or draw(EITHER):
        return Gang.of(place)
    tasks = [[1] * place[node_id] for node_id in sorted(place)]
    larger = [scale for scale in demand if scale >= sum(place.values())]
    tasks[0][0] += draw(st.sampled_from(larger)) - sum(place.values())
    return Gang.of(place, Relaxed(tasks=tuple(map(tuple, tasks))))


def _place(draw: st.DrawFn, demand: list[int], own: list[ViewNode]) -> Configuration:
    """On some nodes that the job can use, of one type or several, whether idle or not."""
    gpus = draw(st.sampled_from(demand))
    nodes = draw(st.lists(st.sampled_from(own), min_size=1, max_size=gpus, unique_by=lambda one: one.node_id))
    cuts = (
        draw(
            st.lists(st.integers(1, gpus - 1), min_size=len(nodes) - 1, max_size=len(nodes) - 1, unique=True)
        )
        if len(nodes) > 1
        else []
    )
    edges = [0, *sorted(cuts), gpus]
    return {one.node_id: upto - since for one, since, upto in zip(nodes, edges, edges[1:], strict=False)}


def mentioned(decision: Decision) -> list[str]:
    """The jobs that a decision speaks of."""
    return sorted([choice.job_id for choice in decision.choices] + [left.job_id for left in decision.left])
