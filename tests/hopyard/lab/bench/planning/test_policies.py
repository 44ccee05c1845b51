"""Every policy plays the same rounds, and its memory goes with it."""

import msgspec

from hopyard.lab.bench.planning.instances import Scene, Shape
from hopyard.lab.bench.planning.policies import COLUMNS, play, policies
from hopyard.lab.bench.planning.rounds import STEPS, after, opening
from schemas.settings import Settings
from services.planner.core.without_estimates import keep_running
from services.planner.policies.gavel.policy import GavelOptions

SCENE = Scene(Shape(gpus=64, load=4.0), 1)


def test_the_next_round_goes_on_from_the_last_decision() -> None:
    view, batches = opening(SCENE)
    decision = msgspec.structs.replace(keep_running(view, "stay"), memory=b"own")
    later = after(view, decision, 4, batches[0])
    before = {job.job_id: job for job in view.jobs}
    old = [job for job in later.jobs if job.job_id in before]
    assert later.memory == b"own"
    assert len(later.jobs) - len(old) == len(batches[0]) > 0
    assert all(job.samples_done < job.samples for job in later.jobs)
    for job in old:
        ran = job.samples_done > before[job.job_id].samples_done
        waited = job.wait_s > before[job.job_id].wait_s
        assert ran is (job.present is not None) is not waited


def test_the_last_plan_comes_after_a_reset_of_gavel() -> None:
    round_s, reset_s = Settings().round_s, GavelOptions().reset_s
    assert sum(STEPS[:-1]) * round_s < reset_s <= sum(STEPS) * round_s


async def test_policies_stand_side_by_side() -> None:
    said: list[str] = []
    asked = ("fifo", "nobody")
    measured = await policies(said.append, (64,), asked=asked)
    assert measured.grid is not None
    rows = {row[1]: dict(zip(COLUMNS, row, strict=True)) for row in measured.grid.rows}
    assert {name: row["in time"] for name, row in rows.items()} == {"fifo": "4/4", "nobody": "0/4"}
    assert "no such policy nobody" in said[-1]


async def test_every_plan_of_gavel_is_sound_and_in_time() -> None:
    took = await play("gavel", SCENE)
    assert [one.failed for one in took] == [""] * len(STEPS)
    assert all(one.seconds > 0 and one.configurations > one.jobs for one in took)
