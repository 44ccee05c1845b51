from collections.abc import AsyncIterator

from hopyard.lab.bench.stack.latency import Watch, figures
from schemas.events import JobQueued, JobStarted
from shared.runtime.bus.contract import Record
from tests.fact_builders import JOB, PLACE, placement, plan, queued, start_ordered, started, submitted


async def no_facts() -> AsyncIterator[list[Record]]:
    return
    yield


def test_a_way_is_split_into_its_steps() -> None:
    watch = Watch(no_facts())
    watch.note([submitted(at=100.0)], 1.0)
    watch.note([queued(at=100.25)], 1.5)
    watch.note([plan(placement(JOB, place=PLACE), at=101.0)], 2.5)
    watch.note([start_ordered(at=101.0)], 2.75)
    watch.note([started(at=101.5)], 3.5)
    shown = {figure.name: figure.value for figure in figures(watch, [JOB])}
    assert shown["submitted to running, by the facts' times p50"] == 1.5
    assert shown["submitted to queued, as seen p50"] == 0.5
    assert shown["queued to planned, as seen p50"] == 1.0
    assert shown["planned to ordered, as seen p99"] == 0.25
    assert shown["ordered to running, as seen p99"] == 0.75
    assert shown["submitted to running, as seen p99"] == 2.5


def test_the_first_of_several_facts_of_a_kind_counts() -> None:
    watch = Watch(no_facts())
    watch.note([queued(at=1.0)], 10.0)
    watch.note([queued(at=2.0)], 20.0)
    assert watch.seen[JobQueued, JOB] == 10.0


async def test_a_fact_already_seen_is_not_waited_for() -> None:
    watch = Watch(no_facts())
    watch.note([started()], 10.0)
    await watch.until(JobStarted, JOB)
