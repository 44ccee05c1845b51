"""Measures the page over 256 nodes and 2,000 jobs: how soon it appears, and what an update takes.

A monitor and admission over a log that was made beforehand; while the browser looks, jobs end.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from operator import attrgetter
from pathlib import Path

from selenium.webdriver import Chrome

from hopyard.failures import Failure
from hopyard.lab.bench.figures import Benchmark, Reading, count, quantile, seconds
from hopyard.lab.bench.page.chromium import PROGRAMS, browser, complaints, found, js, until
from hopyard.lab.bench.stack.history import EVERY_S, history, life
from hopyard.lab.bench.stack.restart import PATIENCE
from hopyard.lab.bench.stack.services import address, begin, bus_to, nats_server, store_log
from hopyard.local.credentials import ensure_tokens, page_link
from hopyard.local.stack_settings import StackSpec
from schemas.base import Event
from schemas.cluster import ClusterFile, GpuTypeFile, Node, NodeGroup
from schemas.events import JobCompleted, WorkerStopped
from schemas.ids import GpuType
from shared.domain.cluster import nodes_of
from shared.runtime.bus.contract import Facts

JOBS, NODES = 2_000, 256
LIVE_FACTS_PER_S = 20
WATCHED_S = 6.0

WAITING = "jobs that wait, as the page counts them"
ROWS = "table rows in the page"
CANVAS = "height of what is drawn, pixels"
COMPLAINTS = "complaints of the console"


def cluster() -> ClusterFile:
    kind = GpuTypeFile(link_bandwidth=1e10, network_bandwidth=1e9)
    counts = {"titan-xp": NODES // 2, "gtx-1080-ti": NODES // 4, "rtx-3090": NODES // 4}
    groups = [
        NodeGroup(prefix=name, count=count, gpus=4, gpu_type=GpuType(name)) for name, count in counts.items()
    ]
    return ClusterFile(name="large", gpu_types={GpuType(name): kind for name in counts}, nodes=groups)


async def page(data: Path, jobs: int = JOBS) -> Benchmark:
    """Measured with half of the jobs ended, one running on each node, the rest waiting. Raises Failure."""
    for program in PROGRAMS:
        found(program)
    nodes = nodes_of(cluster())
    ended = jobs // 2
    running = min(len(nodes), jobs - ended)
    names = ("monitor", "admission")
    spec = StackSpec(
        data=data, cluster=cluster(), clock_origin=time.time() - (jobs + 2) * EVERY_S, chosen=PATIENCE
    )
    ensure_tokens(data)
    await store_log(data / "nats", facts(nodes, jobs, ended, running), 0, names)
    async with nats_server(data / "nats") as server:
        lives = [await begin(name, spec, server) for name in names]
        try:
            async with bus_to(server) as bus:
                coming = completions(nodes, range(ended, ended + running))
                publishing = asyncio.create_task(publish_slowly(bus, coming))
                figures = await asyncio.to_thread(
                    measured_page, page_link(address(lives[1].port), data), data / "profile"
                )
                publishing.cancel()
        finally:
            for each in lives:
                await each.stop()
    return Benchmark(
        name="page",
        conditions=f"headless Chromium, 1280 × 900; {len(nodes)} nodes, {jobs} jobs, of which {ended} have "
        f"ended and {running} run; {LIVE_FACTS_PER_S} facts a second come in",
        figures=tuple(figures),
    )


def facts(nodes: Sequence[Node], jobs: int, ended: int, running: int) -> list[Event]:
    over = (WorkerStopped, JobCompleted)
    run = chain.from_iterable(life(ended + number, nodes) for number in range(running))
    wait = chain.from_iterable(islice(life(number, nodes), 3) for number in range(ended + running, jobs))
    now = [fact for fact in chain(run, wait) if not isinstance(fact, over)]
    return [*history(nodes, ended), *sorted(now, key=attrgetter("at"))]


def completions(nodes: Sequence[Node], running: range) -> Iterator[Event]:
    """The facts by which running jobs end."""
    for number in running:
        yield from list(life(number, nodes))[-2:]


async def publish_slowly(bus: Facts, coming: Iterator[Event]) -> None:
    for fact in coming:
        await bus.publish([fact])
        await asyncio.sleep(1 / LIVE_FACTS_PER_S)


def measured_page(url: str, profile: Path) -> list[Reading]:
    """Open the page, watch it for a while, scroll. Raises Failure."""
    with browser(profile) as driver:
        driver.get(url)
        until(driver, lambda: js(driver, "return document.getElementById('main').dataset.read"), "the data")
        opened = [
            seconds("first paint", js(driver, FIRST_PAINT) / 1000),
            seconds("everything of the cluster shown", updates(driver)[0][1] / 1000),
            count(WAITING, js(driver, MORE_JOBS)),
        ]
        return [*opened, *watched(driver)]


def watched(driver: Chrome) -> list[Reading]:
    driver.execute_cdp_cmd("Performance.enable", {})
    before, seen = main_thread_s(driver), len(updates(driver))
    time.sleep(WATCHED_S)
    drawn = [took / 1000 for took, _ in updates(driver)[seen:]]
    busy_s = main_thread_s(driver) - before
    if not drawn:
        raise Failure(f"the page drew nothing new in {WATCHED_S:g} s, though facts came in")
    return [
        count("updates seen", len(drawn)),
        seconds("drawing of an update, median", quantile(drawn, 0.5)),
        seconds("drawing of an update, longest", max(drawn)),
        seconds("main thread, of an update in all", busy_s / len(drawn)),
        count("changes of the timeline, bytes received", js(driver, RECEIVED)),
        count(ROWS, js(driver, "return document.querySelectorAll('tr').length")),
        count(CANVAS, js(driver, "return document.getElementById('canvas').clientHeight")),
        seconds("timeline drawn while scrolling, median", quantile(js(driver, SCROLL), 0.5) / 1000),
        count(COMPLAINTS, len(complaints(driver))),
    ]


FIRST_PAINT = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? NaN"
MORE_JOBS = """
const more = document.querySelector("#jobs-more").textContent;
return Math.max(0, ...(more.match(/[0-9,]+/g) ?? []).map((each) => Number(each.replaceAll(",", ""))));
"""
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
    """How long each update took to draw, and when it was drawn; milliseconds."""
    return [(float(took), float(end)) for took, end in js(driver, UPDATES)]


def main_thread_s(driver: Chrome) -> float:
    metrics = driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return float(next(each["value"] for each in metrics if each["name"] == "TaskDuration"))
