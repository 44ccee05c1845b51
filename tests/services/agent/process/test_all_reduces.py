"""All-reduces that are timed: on which GPUs, and what is left of their processes."""

from collections.abc import Sequence

import pytest

from schemas.calibration import AllReduceTimes, Ring
from schemas.questions import JoinAllReduce
from services.agent.process import runner
from services.agent.process.all_reduces import NotTimed
from services.agent.process.host import Host
from tests.services.agent.agent_bench import HERE
from tests.services.agent.agent_bench import node as a_node
from tests.services.agent.process.process_bench import order, running_node

TIMES = AllReduceTimes(seconds=((1.0,),))


def part(gpus: int) -> JoinAllReduce:
    ring = Ring(members=((a_node(HERE), gpus),))
    return JoinAllReduce(node_id=HERE, ring=ring, sizes=(1e6,), repeats=1, meeting="127.0.0.1:1")


async def test_all_reduces_run_on_none_but_the_gpus_they_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Sequence[int]] = []

    async def timed(_: Host, question: JoinAllReduce, gpu_indices: Sequence[int]) -> AllReduceTimes:  # noqa: ARG001
        taken.append(gpu_indices)
        return TIMES

    monkeypatch.setattr(runner, "timed", timed)
    async with running_node() as node:
        await node.trained(order("iterations=1000000"))
        assert await node.runner.all_reduces(part(2), (0, 2, 3)) == TIMES
        assert taken == [[2, 3]]
        with pytest.raises(NotTimed, match="2 GPUs wanted, 1 free"):
            await node.runner.all_reduces(part(2), (0, 3))
