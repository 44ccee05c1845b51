"""How long a device takes from one job to the next."""

import json
from itertools import pairwise

import pytest

from hopyard.lab.bench.switching import in_turns, running, switches
from tests.services.agent.process.process_bench import short_folder
from tests.services.agent.process.test_turns import one_at_a_time
from tests.torch_python import torch_python


def test_a_switch_is_from_one_jobs_last_task_to_anothers_first() -> None:
    spans = {"a": [(0.0, 1.0), (1.1, 2.0), (5.0, 6.0)], "b": [(2.5, 4.0)]}
    assert switches(spans) == {"a": [1.0], "b": [0.5]}


@pytest.mark.torch
@pytest.mark.asyncio
async def test_real_jobs_that_take_turns_compute_one_at_a_time() -> None:
    """By their own clocks, and by the log of their executor."""
    with short_folder() as folder:
        async with running(folder / "data", torch_python(), template=True) as node:
            spans = await in_turns(node, ("spirals", "shapes"), 20)
        log = node.folders.turns(0).read_text("utf-8")
    one_at_a_time([json.loads(line) for line in log.splitlines()])
    line = sorted((*one, job) for job, of_job in spans.items() for one in of_job)
    assert all(begin >= end for (_, end, _), (begin, _, _) in pairwise(line))
    assert min(map(len, switches(spans).values())) >= 15
