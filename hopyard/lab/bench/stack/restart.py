"""Measures how soon a service is back after kill -9, with a long log to replay.

Twice: without a snapshot, so that the whole log is replayed; and with the snapshot that it has by then,
followed by nearly as many facts as it takes to make the next one: the longest replay there is.
"""

import asyncio
import time
from pathlib import Path

from hopyard.failures import NotReady
from hopyard.lab.bench.figures import Benchmark, Reading, count, seconds
from hopyard.lab.bench.stack.history import FACTS_PER_JOB, end_s, history
from hopyard.lab.bench.stack.services import begin, bus_to, cursor, nats_server, store_log
from hopyard.local.stack_settings import SERVICES, StackSpec
from loadgen.scenarios import load_cluster
from schemas.settings import Settings
from shared.domain.cluster import nodes_of
from shared.runtime.bus.contract import State
from shared.runtime.process.nats_server import NatsServer

JOBS = 10_000
CLUSTER = "hops-64"
CAUGHT_UP_LIMIT_S = 120.0
LOOK_EVERY_S = 0.05
REPLAYED = "hopyard_shell_replay_seconds_total"
FACTS = "hopyard_shell_facts_total"
PATIENCE = {"node_lease_real_s": 1e6, "start_timeout_real_s": 1e6}
"""there are no agents, and the log is old: no node may count as lost for that, no placement as late"""


async def restart(data: Path, jobs: int = JOBS) -> Benchmark:
    """Kill and start each service, alone with a NATS server, after `jobs` completed jobs."""
    cluster = load_cluster(CLUSTER)
    nodes = nodes_of(cluster)
    names = (*SERVICES, f"agent-{nodes[0].node_id}")
    tail = (Settings().snapshot_every - 1) // FACTS_PER_JOB
    facts = history(nodes, jobs + tail)
    handled = len(facts) - tail * FACTS_PER_JOB
    await store_log(data / "nats", facts, handled, names)
    spec = StackSpec(
        data=data,
        cluster=cluster,
        clock_origin=time.time() - end_s(nodes, jobs + tail),
        chosen=PATIENCE,
    )
    async with nats_server(data / "nats") as server:
        figures = [figure for name in names for figure in await _of_service(name, spec, server, len(facts))]
    return Benchmark(
        name="restart",
        conditions="start of the process to ready, one service at a time; "
        f"{handled} facts of {jobs} jobs in the log; {tail * FACTS_PER_JOB} at most after the snapshot",
        figures=tuple(figures),
    )


async def _of_service(name: str, spec: StackSpec, server: NatsServer, last: int) -> list[Reading]:
    figures = []
    for kind in ("no snapshot", "snapshot"):
        life = await begin(name, spec, server)
        try:
            shown = await life.metrics()
            figures += [
                seconds(f"{name}, {kind}: ready", life.ready_s),
                seconds(f"{name}, {kind}: of that replay", shown[REPLAYED]),
                count(f"{name}, {kind}: facts by then", shown[FACTS]),
            ]
            await _caught_up(name, server, last)
        finally:
            await life.kill()
    return figures


async def _caught_up(name: str, server: NatsServer, last: int) -> None:
    """Wait until the service's cursor has passed the last fact of the log. Raises NotReady."""
    try:
        async with asyncio.timeout(CAUGHT_UP_LIMIT_S), bus_to(server) as bus:
            while await _cursor_of(name, bus) < last:  # noqa: ASYNC110 - another process moves it
                await asyncio.sleep(LOOK_EVERY_S)
    except TimeoutError:
        raise NotReady(f"{name} has not caught up after {CAUGHT_UP_LIMIT_S:g} s") from None


async def _cursor_of(name: str, bus: State) -> int:
    stored = await bus.get(cursor(name))
    return int(stored[0]) if stored else 0
