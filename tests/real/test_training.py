"""Eight jobs on four agents, moved again and again: all is trained once, predicted, and cleaned up.

The tests look at one run.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from itertools import cycle, pairwise
from pathlib import Path
from statistics import mean

import msgspec
import pytest
import pytest_asyncio

from hopyard.api.client import Client
from schemas.accuracy import Execution
from schemas.base import Event
from schemas.events import JobCompleted, JobPreempted, JobStarted
from schemas.jobs import JobFile
from shared.domain.audit import audit
from shared.domain.states import ENDED
from tests.real.real_builders import (
    BATCH,
    EPOCH,
    SETTINGS,
    Step,
    executions_in,
    exported,
    job_file,
    nothing_left,
    real_stack,
    steps_of,
)
from tests.stack_watch import until

pytestmark = [pytest.mark.torch, pytest.mark.asyncio(loop_scope="module")]

PREEMPTIONS = 10
LOSS_JUMP = 1.3
"""over the worst of the last five steps: a step of 16 samples may raise the loss, too"""
LONG_ENOUGH_S = 4.0
"""an execution shorter than that measures the start of its processes"""
ACCURACY = 0.9


class Run(msgspec.Struct, frozen=True, kw_only=True):
    folder: Path
    log: list[Event]
    seqs: list[int]
    ledgers: dict[str, list[Step]]
    """by job"""
    executions: list[Execution]


def jobs(ledger: Path) -> list[JobFile]:
    """Jobs of demands 1, 2 and 4, and two workloads; some can only run over two nodes."""
    return [
        job_file(
            f"job-{number}",
            ledger,
            gpus=gpus,
            gpu_types=gpu_types,
            samples=samples,
            model=f"paced-{width}",
            environment={"WIDTH": str(width)},
            learning_rate={"value": 0.001, "gpus": 1, "rule": "constant"},
        )
        for number, (gpus, gpu_types, samples, width) in enumerate(
            [
                (4, ["fast"], 8_000, 64),
                ([1, 2], None, 5_000, 64),
                (1, None, 2_500, 64),
                ([1, 2, 4], None, 8_000, 32),
                ([1, 2], None, 5_000, 32),
                (1, None, 2_500, 32),
                (2, ["slow"], 3_000, 64),
                (1, None, 2_500, 64),
            ]
        )
    ]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("real")
    ledger = folder / "ledger"
    submitted = jobs(ledger)
    async with real_stack(folder) as (stack, client):
        for number, job in enumerate(submitted):
            await client.submit(job, f"key-{number}")
        shaking = asyncio.create_task(shake(client))
        await until(client, lambda status: _ended(status.jobs) == len(submitted))
        shaking.cancel()
        lines = [line async for line in client.events()]
        export = await exported(stack)
    await nothing_left(folder)
    return Run(
        folder=folder,
        log=[line.fact() for line in lines],
        seqs=[line.seq for line in lines],
        ledgers={job.name: steps_of(ledger / job.name) for job in submitted},
        executions=executions_in(export),
    )


def _ended(jobs: dict[str, int]) -> int:
    return sum(jobs.get(state, 0) for state in ENDED)


async def shake(client: Client) -> None:
    """Drain one node after the other for a round, so that what runs there must move."""
    nodes = [view.node.node_id for view in (await client.nodes()).nodes]
    for node_id in cycle(nodes):
        await client.drain(node_id)
        await asyncio.sleep(float(SETTINGS["round_s"]) + 2.0)
        await client.restore(node_id)


def of_type(log: Sequence[Event], kind: type[Event]) -> list[Event]:
    return [fact for fact in log if isinstance(fact, kind)]


async def test_every_job_completes_though_they_were_moved(run: Run) -> None:
    assert len(of_type(run.log, JobCompleted)) == len(run.ledgers)
    preemptions = len(of_type(run.log, JobPreempted))
    print(f"{preemptions} preemptions, {max(fact.at for fact in run.log):.0f} s")
    assert preemptions >= PREEMPTIONS
    assert audit(run.log, drained=True, seqs=run.seqs) == []


async def test_gangs_of_several_sizes_and_places_ran(run: Run) -> None:
    started = [fact for fact in run.log if isinstance(fact, JobStarted)]
    assert {1, 2, 4} <= {fact.gang.gpus for fact in started}
    assert any(len(fact.gang.members) > 1 for fact in started)


async def test_no_sample_is_trained_twice_and_none_is_left_out(run: Run) -> None:
    """An epoch ends when less than a whole step is left: these samples, and no others, are left out."""
    for name, steps in run.ledgers.items():
        epochs: dict[int, Counter[int]] = {}
        for step in steps:
            epochs.setdefault(int(step.samples // EPOCH), Counter()).update(step.indices)
        last = max(epochs)
        for epoch, trained in epochs.items():
            assert max(trained.values()) == 1, f"{name}: a sample twice in epoch {epoch}"
            if epoch < last:
                most = max(step.world for step in steps) * BATCH
                assert len(trained) > EPOCH - most, f"{name}: samples left out of epoch {epoch}"


async def test_a_resumed_job_has_its_earlier_loss(run: Run) -> None:
    resumed = 0
    for name, steps in run.ledgers.items():
        stretches = _stretches([step for step in steps if step.rank == 0])
        for before, after in pairwise(stretches):
            resumed += 1
            last, first = max(step.loss for step in before[-5:]), after[0].loss
            assert first <= LOSS_JUMP * last, f"{name}: loss {last:.2f} before, {first:.2f} after"
    assert resumed >= PREEMPTIONS // 2


async def test_executions_ran_at_the_expected_throughput(run: Run) -> None:
    """Executions of one and two ranks, in one place and over two nodes."""
    for distributed in (False, True):
        found = [
            one.error
            for one in run.executions
            if one.distributed is distributed and one.gpus <= 2 and one.seconds >= LONG_ENOUGH_S
        ]
        print(f"distributed {distributed}: {len(found)} executions, mean error {mean(found or [0]):.1%}")
        assert 1.0 - mean(found) >= ACCURACY


def _stretches(steps: Sequence[Step]) -> list[list[Step]]:
    """Steps of one placement each, in the order in which they ran."""
    by_placement: dict[str, list[Step]] = {}
    for step in sorted(steps, key=lambda step: step.at):
        by_placement.setdefault(step.placement, []).append(step)
    return list(by_placement.values())
