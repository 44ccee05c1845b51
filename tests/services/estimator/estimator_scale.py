"""Questions as a planner of 2,048 GPUs would ask them, and an estimator to put them to."""

import asyncio

import numpy as np
import numpy.typing as npt

from schemas.base import Message
from schemas.ids import JobId, NodeId
from schemas.questions import EstimateQuestion, Estimates
from shared.runtime.bus.contract import Bus
from tests.services.estimator.estimator_builders import workload

JOBS, WORKLOADS = 500, 25
NODES, GPU_TYPES = 256, 4
ASK_LIMIT_S = 30.0


def question(configurations: int) -> EstimateQuestion:
    """Every other one on one node, the rest on two or three; eight GPUs a node."""
    draw = np.random.default_rng(2)
    widths = draw.choice([1, 1, 2, 3], configurations)
    start = np.concatenate([[0], np.cumsum(widths)])
    return EstimateQuestion(
        jobs=tuple(JobId(f"j{number}") for number in range(JOBS)),
        workloads=tuple(workload(f"m{number % WORKLOADS}").fingerprint for number in range(JOBS)),
        nodes=tuple(NodeId(f"n{number}") for number in range(NODES)),
        job=_wire(np.sort(draw.integers(0, JOBS, configurations))),
        start=_wire(start),
        node=_wire(draw.integers(0, NODES, int(start[-1]))),
        gpus=_wire(draw.integers(1, 9, int(start[-1]))),
    )


def whole(reply: Message, configurations: int) -> bool:
    """Whether every configuration got a number."""
    if not isinstance(reply, Estimates):
        return False
    throughput = np.frombuffer(reply.throughput, dtype="<f8")
    return len(throughput) == configurations and bool((throughput > 0).all())


async def answered(bus: Bus, asked: EstimateQuestion) -> Message:
    """As soon as the service is there."""
    async with asyncio.timeout(ASK_LIMIT_S):
        while True:
            try:
                return await bus.ask(asked, ASK_LIMIT_S)
            except ConnectionError:
                await asyncio.sleep(0.05)


def _wire(column: npt.NDArray[np.int64]) -> bytes:
    return column.astype("<i4").tobytes()
