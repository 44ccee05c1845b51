"""In which modes a job can train, as its profile found it: no other is planned for it."""

import msgspec
import pytest

from schemas.ids import JobId
from schemas.measurements import DataMode, TimeModules
from schemas.settings import Settings
from tests.fact_builders import V100, joined, opened, profiled, queued, submitted
from tests.services.planner.planner_builders import Stage

MODULES = TimeModules(
    data=(DataMode(probability=1.0, mean_s=0.01, std_s=0.0),),
    forward_s=0.1,
    backward_s=0.2,
    update_s=0.05,
    parameters=1e7,
    pattern=1,
    iterations=4,
)
RELAXED = ("lockstep", "relaxed")


def stage_of(found: tuple[str, ...], written: tuple[str, ...] = ()) -> Stage:
    stage = Stage(Settings(policy="hare"))
    profile = profiled("job-1")
    modules = {V100: msgspec.structs.replace(MODULES, modes=found)}
    came = submitted("job-1", demand=(4,), samples=1e9)
    came = msgspec.structs.replace(came, spec=msgspec.structs.replace(came.spec, modes=written))
    stage.tell(joined(modes=RELAXED), came, msgspec.structs.replace(profile, modules=modules))
    stage.tell(queued("job-1"), opened())
    return stage


@pytest.mark.parametrize(
    ("found", "written", "placed"),
    [
        ((), (), True),
        (("lockstep",), (), False),
        (("lockstep", "relaxed"), (), True),
        (("lockstep",), RELAXED, True),
        (RELAXED, ("lockstep",), False),
    ],
)
def test_a_job_is_planned_in_the_modes_that_were_found_unless_its_file_says(
    found: tuple[str, ...],
    written: tuple[str, ...],
    placed: bool,  # noqa: FBT001
) -> None:
    stage = stage_of(found, written)
    assert stage.core.state.jobs[JobId("job-1")].modes == (written or found)
    assert [one.job_id for one in stage.plan.placements] == ["job-1"] * placed
    assert placed or [one.detail for one in stage.plan.left_out] == ["it runs no relaxed gangs"]
