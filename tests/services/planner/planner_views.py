"""Any cluster and queue that a policy may be shown, and of whom its decision speaks."""

from hypothesis import strategies as st

from schemas.ids import PlacementId
from schemas.placement import Gang
from schemas.plans import Layer, PlanKind
from services.planner.policies.contract.decision import Decision
from services.planner.policies.contract.view import Present, View, ViewJob, ViewNode
from tests.services.planner.planner_builders import FAST, SLOW, job, node, place_on, view


@st.composite
def views(draw: st.DrawFn) -> View:
    cluster = [
        node(f"n{index}", draw(st.integers(0, 4)), gpus=4, gpu_type=draw(st.sampled_from([FAST, SLOW])))
        for index in range(draw(st.integers(0, 5)))
    ]
    kind = draw(st.sampled_from(list(PlanKind)))
    jobs = [_job(draw, index, cluster, kind) for index in range(draw(st.integers(0, 6)))]
    return view(jobs, cluster, kind=kind)


def _job(draw: st.DrawFn, index: int, cluster: list[ViewNode], kind: PlanKind) -> ViewJob:
    demand = sorted(draw(st.sets(st.integers(1, 8), min_size=1, max_size=4)))
    types = tuple(sorted(draw(st.sets(st.sampled_from([FAST, SLOW])))))
    own = [member for member in cluster if member.gpu_type in types]
    here = None
    if kind == PlanKind.FIRST and own and draw(st.booleans()):
        place = place_on(**{draw(st.sampled_from(own)).node_id: demand[0]})
        here = Present(
            placement_id=PlacementId(f"p{index}"), gang=Gang.of(place), throughput=1.0, layer=Layer.TYPE
        )
    return job(
        f"j{index}",
        demand,
        gpu_types=types,
        sensitivity=draw(st.floats(1.0, 3.0)),
        wait_s=draw(st.floats(0.0, 1000.0)),
        age_s=draw(st.floats(1.0, 1000.0)),
        attained_gpu_s=draw(st.floats(0.0, 10_000.0)),
        samples_done=draw(st.floats(0.0, 1000.0)),
        project=draw(st.sampled_from(["default", "other"])),
        submitted_at=float(index),
        present=here,
    )


def mentioned(decision: Decision) -> list[str]:
    """The jobs that a decision speaks of."""
    return sorted([choice.job_id for choice in decision.choices] + [left.job_id for left in decision.left])
