"""The page over 256 nodes and 2,000 jobs: how soon it is there, and what an update takes."""

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from operator import attrgetter
from pathlib import Path

import pytest
from selenium.webdriver import Chrome

from hopyard.lab.bench.figures import quantile
from hopyard.lab.bench.history import EVERY_S, history, life
from hopyard.lab.bench.services import address, begin, bus_to, nats_server, store_log
from hopyard.local.stack import StackSpec
from schemas.base import Event
from schemas.cluster import ClusterFile, GpuTypeFile, Node, NodeGroup
from schemas.events import JobCompleted, WorkerStopped
from schemas.ids import GpuType
from shared.domain.cluster import nodes_of
from shared.runtime.bus.contract import Facts
from tests.browser.chromium import browser, complaints, js, text, until

pytestmark = pytest.mark.browser

JOBS, ENDED, NODES = 2_000, 1_000, 256
RUNNING = NODES
LIVE_FACTS_PER_S = 20
WATCHED_S = 6.0
PATIENCE = {"node_lease_real_s": 1e6, "start_timeout_real_s": 1e6}
"""there are no agents"""

ROWS_MOST = 700
"""of the tables, whatever there is: 50 jobs, 12 plans, services, and the 256 nodes if they are opened"""


def cluster() -> ClusterFile:
    kind = GpuTypeFile(link_bandwidth=1e10, network_bandwidth=1e9)
    counts = {"titan-xp": 128, "gtx-1080-ti": 64, "rtx-3090": 64}
    groups = [
        NodeGroup(prefix=name, count=count, gpus=4, gpu_type=GpuType(name)) for name, count in counts.items()
    ]
    return ClusterFile(name="large", gpu_types={GpuType(name): kind for name in counts}, nodes=groups)


def facts(nodes: Sequence[Node]) -> list[Event]:
    """1,000 jobs have ended, one runs on every node, the others wait."""
    over = (WorkerStopped, JobCompleted)
    running = chain.from_iterable(life(ENDED + number, nodes) for number in range(RUNNING))
    waiting = chain.from_iterable(islice(life(number, nodes), 3) for number in range(ENDED + RUNNING, JOBS))
    now = [fact for fact in chain(running, waiting) if not isinstance(fact, over)]
    return [*history(nodes, ENDED), *sorted(now, key=attrgetter("at"))]


def what_comes(nodes: Sequence[Node]) -> Iterator[Event]:
    """The ends of jobs that run."""
    for number in range(RUNNING):
        yield from list(life(ENDED + number, nodes))[-2:]


async def test_a_large_cluster_stays_smooth(tmp_path: Path) -> None:
    nodes = nodes_of(cluster())
    names = ("monitor", "admission")
    spec = StackSpec(
        data=tmp_path, cluster=cluster(), clock_origin=time.time() - (JOBS + 2) * EVERY_S, chosen=PATIENCE
    )
    await store_log(tmp_path / "nats", facts(nodes), 0, names)
    async with nats_server(tmp_path / "nats") as server:
        lives = [await begin(name, spec, server) for name in names]
        try:
            async with bus_to(server) as bus:
                looking = asyncio.create_task(asyncio.to_thread(looked_at, address(lives[1].port), tmp_path))
                publishing = asyncio.create_task(publish_slowly(bus, what_comes(nodes)))
                figures = await looking
                publishing.cancel()
        finally:
            for each in lives:
                await each.stop()
    print("\n" + "\n".join(f"{name:40} {value:10.3f} {unit}" for (name, unit), value in figures.items()))


async def publish_slowly(bus: Facts, coming: Iterator[Event]) -> None:
    for fact in coming:
        await bus.publish([fact])
        await asyncio.sleep(1 / LIVE_FACTS_PER_S)


def looked_at(url: str, folder: Path) -> Mapping[tuple[str, str], float]:
    with browser(folder / "profile") as driver:
        driver.get(url)
        until(driver, lambda: js(driver, "return document.getElementById('main').dataset.read"), "the data")
        first = {
            ("first paint", "s"): js(driver, FIRST_PAINT) / 1000,
            ("everything of the cluster shown", "s"): updates(driver)[0][1] / 1000,
        }
        assert f"{JOBS - ENDED - RUNNING:,}" in text(driver, "#jobs-more")
        driver.execute_cdp_cmd("Performance.enable", {})
        before, seen = main_thread_s(driver), len(updates(driver))
        time.sleep(WATCHED_S)
        drawn = updates(driver)[seen:]
        assert drawn, "it follows the facts"
        busy_s = main_thread_s(driver) - before
        assert js(driver, "return document.querySelectorAll('tr').length") < ROWS_MOST
        assert js(driver, CANVAS_HEIGHT) < 1_000, "only the rows that are seen are drawn"
        scrolled = js(driver, SCROLL)
        assert complaints(driver) == []
        return first | {
            ("updates seen", ""): float(len(drawn)),
            ("drawing of an update, median", "s"): quantile([took for took, _ in drawn], 0.5) / 1000,
            ("drawing of an update, longest", "s"): max(took for took, _ in drawn) / 1000,
            ("main thread, of an update in all", "s"): busy_s / len(drawn),
            ("changes of the timeline, received", "bytes"): js(driver, RECEIVED),
            ("timeline drawn while scrolling, median", "s"): quantile(scrolled, 0.5) / 1000,
        }


FIRST_PAINT = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? NaN"
CANVAS_HEIGHT = "return document.getElementById('canvas').clientHeight"
RECEIVED = """
const found = performance.getEntriesByType("resource");
return found.findLast((each) => each.name.includes("timeline")).encodedBodySize;
"""
UPDATES = """
const found = performance.getEntriesByName("hopyard-update");
return found.map((each) => [each.duration, each.startTime + each.duration]);
"""
SCROLL = """
const lanes = document.getElementById("lanes");
const times = [];
for (let at = 0; at < 40; at++) {
  lanes.scrollTop = at * 60;
  const began = performance.now();
  lanes.dispatchEvent(new Event("scroll"));
  times.push(performance.now() - began);
}
return times;
"""


def updates(driver: Chrome) -> list[tuple[float, float]]:
    """Of each: how long it took to draw, and when it was done; milliseconds."""
    return [(float(took), float(end)) for took, end in js(driver, UPDATES)]


def main_thread_s(driver: Chrome) -> float:
    metrics = driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return float(next(each["value"] for each in metrics if each["name"] == "TaskDuration"))
