"""A stack for one job alone: run to its end, and what was written of it."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from schemas.accuracy import Execution
from schemas.base import Event
from schemas.events import JobCompleted, JobStarted, WorkerStopped
from schemas.jobs import JobFile
from shared.domain.audit import audit
from shared.domain.states import ENDED
from tests.real.real_builders import (
    EPOCH,
    Step,
    cluster,
    executions_in,
    exported,
    nothing_left,
    real_stack,
    steps_of,
)
from tests.stack_watch import until

ACCURACY = 0.8
"""of what was predicted, to what was measured"""


class OneJob(msgspec.Struct, frozen=True, kw_only=True):
    log: list[Event]
    started: JobStarted
    """there is one alone"""
    steps: list[Step]
    executions: list[Execution]
    """that the estimator keeps"""


async def completed(data: Path, job: JobFile, *, nodes: Sequence[object], policy: str) -> OneJob:
    """No worker gave a reason for its end, no rule was broken, nothing was left behind.

    The job writes to the folder of its name in `data / "ledger"`.
    """
    async with real_stack(data, cluster(nodes=nodes), policy=policy, policies_allowed=policy) as (
        stack,
        client,
    ):
        await client.submit(job, "key")
        await until(client, lambda status: sum(status.jobs.get(state, 0) for state in ENDED) == 1)
        lines = [line async for line in client.events()]
        executions = executions_in(await exported(stack))
    await nothing_left(data)
    log = [line.fact() for line in lines]
    assert [fact.reason for fact in log if isinstance(fact, WorkerStopped) and fact.reason] == []
    assert any(isinstance(fact, JobCompleted) for fact in log)
    assert audit(log, drained=True, seqs=[line.seq for line in lines]) == []
    [started] = [fact for fact in log if isinstance(fact, JobStarted)]
    steps = steps_of(data / "ledger" / job.name)
    return OneJob(log=log, started=started, steps=steps, executions=executions)


def each_sample_once(steps: Sequence[Step], most_left_out: int) -> None:
    """In an epoch; the first one ends with less than a round of its samples left."""
    epochs: dict[int, Counter[int]] = {}
    for step in steps:
        epochs.setdefault(int(step.samples // EPOCH), Counter()).update(step.indices)
    assert all(max(trained.values()) == 1 for trained in epochs.values())
    assert len(epochs[0]) > EPOCH - most_left_out
