"""GPUs of gangs by type: the stored counts equal those computed from scratch."""

from schemas.ids import GpuType, JobId, NodeId
from schemas.placement import Gang
from services.planner.core.folds import fold
from services.planner.core.publication import GpusByType
from services.planner.core.state import State
from tests.fact_builders import joined

JOB = JobId("job-1")


def gang(**gpus: int) -> Gang:
    return Gang.of({NodeId(name): count for name, count in gpus.items()})


def found(known: GpusByType, state: State, there: Gang) -> dict[GpuType, int]:
    return dict(known.of(state, [(JOB, there)]))[JOB]


def test_gpus_are_of_the_types_that_the_nodes_have_now() -> None:
    state, known, there = State(), GpusByType(), gang(n1=3, n2=1)
    for name, gpu_type, expected in (
        ("n1", "V100", {"V100": 3}),
        ("n2", "A100", {"V100": 3, "A100": 1}),
        ("n2", "V100", {"V100": 4}),
    ):
        fold(state, joined(name, gpu_type=gpu_type, life=f"{name} {gpu_type}"))
        assert found(known, state, there) == expected
        assert found(known, state, there) is found(known, state, there)


def test_another_gang_of_a_job_has_other_gpus() -> None:
    state, known = State(), GpusByType()
    fold(state, joined("n1", gpu_type="V100"))
    assert found(known, state, gang(n1=2)) == {"V100": 2}
    assert found(known, state, gang(n1=4)) == {"V100": 4}


def test_a_node_that_is_not_known_has_no_type() -> None:
    assert found(GpusByType(), State(), gang(n1=2)) == {}
