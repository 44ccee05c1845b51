"""Jobs that another policy has given GPUs in turns."""

import msgspec
import pytest

from schemas.ids import RotaId
from schemas.placement import Gang, Relaxed
from services.planner.policies.contract.view import ViewJob
from services.planner.policies.hlas.memory import remembered
from shared.domain import gangs
from tests.services.planner.planner_builders import decide, place_on, silent, view
from tests.services.planner.policies.hlas.hlas_builders import Toy, placed, single, toy

NODES = [single(0, gpus=4), single(1, gpus=4)]


def in_turn(name: str, place: int, *, stays: bool = False) -> ViewJob:
    gang = Gang.of(place_on(g00=4), Relaxed(tasks=((1, 1, 1, 1),), rota=RotaId("r"), place=place))
    job = placed(toy(name, Toy((1.0, 1.0), 4, 99)), gang)
    assert job.present is not None
    present = msgspec.structs.replace(job.present, share=0.5)
    return msgspec.structs.replace(job, present=present, stays=stays)


def test_each_gets_gpus_of_its_own() -> None:
    decision = decide("hlas", view([in_turn("x", 0), in_turn("y", 1)], NODES), silent, groups=2)
    assert [choice.gang.gpus for choice in decision.choices] == [4, 4]
    assert not any(gangs.rota(choice.gang) for choice in decision.choices)


@pytest.mark.parametrize("who", ["x", "y"])
def test_if_one_may_not_be_moved_all_stay(who: str) -> None:
    jobs = [in_turn(name, place, stays=name == who) for place, name in enumerate("xy")]
    waits = toy("z", Toy((1.0, 1.0), 4, 99))
    decision = decide("hlas", view([*jobs, waits], NODES), silent, groups=2)
    found = {choice.job_id: choice for choice in decision.choices}
    for job in jobs:
        assert job.present is not None
        assert found[job.job_id].gang is job.present.gang
        assert found[job.job_id].share == 0.5
    assert found[waits.job_id].gang.on(NODES[0].node_id) == 0
    assert not remembered(decision.memory).ended
