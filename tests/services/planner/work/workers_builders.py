"""The planner's outside work, done: an estimator that answers on the bus, and a plan made step by step."""

import numpy as np

from schemas.base import Message, Question
from schemas.questions import EstimateQuestion, Estimates
from services.planner.core.tasks import Prepare, Prepared, Resolve
from services.planner.policies.contract.configurations import Configurations
from services.planner.policies.contract.decision import Decision
from services.planner.policies.contract.view import View
from services.planner.work.workers import Workers
from tests.services.planner.planner_builders import job, linear, nodes, view

SEEN = view([job("x", (2, 4)), job("y", (2, 4))], nodes(8))


async def answer(question: Question) -> Message:
    """An estimator: what `linear` says."""
    assert isinstance(question, EstimateQuestion)
    asked = Configurations(
        jobs=question.jobs,
        nodes=question.nodes,
        job=_column(question.job),
        start=_column(question.start),
        node=_column(question.node),
        gpus=_column(question.gpus),
    )
    estimates = linear(asked)
    return Estimates(
        throughput=estimates.throughput.tobytes(), variance=b"", count=b"", layer=estimates.layer.tobytes()
    )


async def planned(at: Workers, policy: str = "hops", seen: View = SEEN) -> tuple[Prepared, Decision]:
    ready = await at.prepare(Prepare(number=1, policy=policy, view=seen))
    return ready, await decided(at, ready, seen, stands_in=ready.policy != policy)


async def decided(at: Workers, ready: Prepared, seen: View, *, stands_in: bool = False) -> Decision:
    task = Resolve(
        number=1,
        policy=ready.policy,
        view=seen,
        wanted=ready.wanted,
        estimates=ready.estimates,
        stands_in=stands_in,
    )
    return (await at.resolve(task)).decision


def _column(data: bytes) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.frombuffer(data, dtype="<i4")
