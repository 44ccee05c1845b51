"""Shares above a batch stay within what profiling proved of a GPU's memory."""

from collections.abc import Mapping

import msgspec
import pytest

from schemas.ids import GpuType
from schemas.placement import Gang
from services.planner.policies.jps.scene import scene
from services.planner.policies.jps.speeds import speeds
from shared.domain import gangs
from tests.services.planner.policies.jps.test_examples import two_jobs

T4, V100 = GpuType("t4"), GpuType("v100")
BATCH = two_jobs().jobs[0].batch_size


def shared(batch_most: Mapping[GpuType, int], share_max: float = 100.0) -> Gang:
    """ResNet-18 (275 and 644 samples/s) on two T4 and a V100."""
    seen = two_jobs()
    jobs = [msgspec.structs.replace(job, batch_most=dict(batch_most)) for job in seen.jobs]
    here = scene(msgspec.structs.replace(seen, jobs=tuple(jobs)), static=False)
    which = next(index for index, job in enumerate(here.jobs) if job.single_gpu[T4] == 275.0)
    place = {node.node_id: 2 if node.gpu_type == T4 else 1 for node in seen.nodes}
    return speeds(here, law="epoch", equal=False, share_max=share_max).gang(which, place)


def samples(gang: Gang) -> tuple[int, ...]:
    assert gangs.global_batch(gang, BATCH) == 3 * BATCH
    return gangs.samples(gang, BATCH)


def test_where_there_is_room_shares_follow_speeds() -> None:
    whole = 3 * BATCH
    assert samples(shared({T4: 64 * BATCH, V100: 64 * BATCH}))[1] == pytest.approx(whole * 644 / 1194, abs=1)


@pytest.mark.parametrize("room", [1.0, 1.1, 1.3])
def test_samples_that_do_not_fit_go_to_the_other_gpus(room: float) -> None:
    most = int(room * BATCH)
    assert samples(shared({T4: 64 * BATCH, V100: most})) == (3 * BATCH - most, most)


def test_the_option_bounds_shares_below_the_memory() -> None:
    known = {T4: 64 * BATCH, V100: 64 * BATCH}
    assert samples(shared(known, share_max=1.25))[1] == int(1.25 * BATCH)


def test_a_type_that_was_not_measured_gets_one_batch() -> None:
    assert shared({}) == Gang.of(shared({}).configuration)
