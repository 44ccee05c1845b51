"""A stack of processes over a real NATS server, and the jobs of the scenario `tiny` for it."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from hopyard.actions.scenario import cluster_of
from hopyard.api.client import Client
from hopyard.api.connect import connect, patiently
from hopyard.local.processes import Restarts, Say
from hopyard.local.stack import Stack, running_stack
from hopyard.local.stack_settings import SERVICES, StackSpec
from loadgen.scenarios import arrivals, load_scenario
from schemas.cluster import ClusterFile
from schemas.views import StatusView
from shared.domain.states import ENDED

SPEED = 120.0
QUICK = 240.0
"""where a test waits for jobs to end, which take as many facts at any speed, and services idle less"""


@asynccontextmanager
async def stack_and_client(
    data: Path,
    *,
    instances: int = 1,
    nats_servers: int = 1,
    cluster: ClusterFile | None = None,
    speed: float = SPEED,
    say: Say = print,
    **settings: str | float,
) -> AsyncIterator[tuple[Stack, Client]]:
    """`settings`: beside those of the scenario; `cluster`: in place of its; `instances`: of each service."""
    scenario = load_scenario("tiny")
    spec = StackSpec(
        data=data,
        cluster=cluster or cluster_of(scenario),
        clock_origin=time.time(),
        speed=speed,
        settings={**scenario.settings, "seed": 1, **settings},
        nats_servers=nats_servers,
        instances=dict.fromkeys(SERVICES, instances),
        restarts=Restarts(most=50, backoff_s=0.05),
    )
    async with running_stack(spec, say) as stack, connect(stack.api_url, stack.token) as client:
        yield stack, client


async def submit_all(client: Client, key: str = "key", most: int | None = None) -> int:
    """Every job of the scenario, or so many, at once, each again until it is acknowledged; how many."""
    jobs = arrivals(load_scenario("tiny"), seed=1)[:most]
    for number, arrival in enumerate(jobs):
        await patiently(lambda job=arrival.job, key=f"{key}-{number}": client.submit(job, key))  # type: ignore[misc]
    return len(jobs)


def all_ended(count: int) -> Callable[[StatusView], bool]:
    return lambda status: sum(status.jobs.get(state, 0) for state in ENDED) >= count
