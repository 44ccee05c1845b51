"""A simulation by the conductor."""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from loadgen.disturbance import Disturb
from loadgen.replay import replay
from loadgen.stack import EMULATED, ENDINGS, LONGEST_S, RETRY_S, Runners, makers
from schemas.cluster import Node
from schemas.events import JobEvent, JobPreempted, JobStarted
from schemas.ids import JobId
from schemas.scenarios import Arrival
from schemas.settings import Settings
from schemas.views import Submitted
from services.admission.questions import Submit
from shared.runtime.bus.contract import Record, Unavailable
from shared.runtime.bus.memory import Faults
from shared.runtime.conductor import Conductor
from shared.runtime.conductor.log import Sink


def ignored(_: Record) -> None:
    """A sink that takes no notice."""


STUCK_S = 24 * 3600.0
"""of cluster time without any job running, or anything happening to one: then a run is over"""


YOUNG_OBJECTS = 100_000
"""after so many new ones the garbage collector looks at them"""


def run(
    settings: Settings,
    nodes: Sequence[Node],
    arrivals: Sequence[Arrival],
    faults: Faults | None,
    disturb: Sequence[Disturb],
    *,
    hear: Sink = ignored,
    runners: Runners = EMULATED,
) -> list[Record]:
    """All facts until every accepted job has ended, and to the end of that instant; each once.

    Jobs that the policy never places are left waiting once nothing else happens.

    `hear`: each as it is stored.
    """
    records: list[Record] = []

    def sink(record: Record) -> None:
        records.append(record)
        hear(record)

    stream(settings, nodes, arrivals, sink, faults=faults, disturb=disturb, runners=runners)
    first: dict[str, Record] = {}
    for record in records:
        first.setdefault(record.event.event_id, record)
    return list(first.values())


def stream(
    settings: Settings,
    nodes: Sequence[Node],
    arrivals: Sequence[Arrival],
    sink: Sink,
    *,
    faults: Faults | None = None,
    disturb: Sequence[Disturb] = (),
    runners: Runners = EMULATED,
) -> None:
    """As `run`, each fact to `sink` as it is stored; with `faults`, some twice."""
    stage = Conductor(makers(settings, nodes, runners), settings, faults=faults, lasting=bool(disturb))
    story = _Story(stage)
    stage.log.sinks += [story.hear, sink]
    for name in stage.names:
        stage.start(name)
    stage.begin(story.tell(arrivals))
    for one in disturb:
        stage.begin(_disturbance(one, stage))
    with _rarely_collected():
        stage.run(story.over)


@contextmanager
def _rarely_collected() -> Iterator[None]:
    """A run makes millions of small objects in no cycles; looking for some took a tenth of its time."""
    before = gc.get_threshold()
    gc.set_threshold(YOUNG_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


async def _disturbance(disturb: Disturb, stage: Conductor) -> None:
    await disturb(stage)


class _Story:
    """Submits the jobs, and hears how they end."""

    def __init__(self, stage: Conductor) -> None:
        self._stage = stage
        self._submitted = False
        self._open: set[JobId] = set()
        """accepted and not ended"""
        self._early: set[JobId] = set()
        """ended before admission's answer was heard"""
        self._running: set[JobId] = set()
        self._last_s = 0.0
        """when something last happened to a job"""

    async def tell(self, arrivals: Sequence[Arrival]) -> None:
        await replay(arrivals, self._submit, self._stage.clock)
        self._submitted = True

    def over(self) -> bool:
        if self._stage.now > LONGEST_S:
            raise TimeoutError(f"not over after {LONGEST_S:g} s")
        return self._submitted and (not self._open or self._stuck)

    @property
    def _stuck(self) -> bool:
        """Jobs wait that the policy never places."""
        return not self._running and self._stage.now - self._last_s > STUCK_S

    def hear(self, record: Record) -> None:
        fact = record.event
        if not isinstance(fact, JobEvent):
            return
        self._last_s = max(self._last_s, fact.at)
        if isinstance(fact, JobStarted):
            self._running.add(fact.job_id)
        elif isinstance(fact, JobPreempted) or type(fact) in ENDINGS:
            self._running.discard(fact.job_id)
        if type(fact) in ENDINGS:
            if fact.job_id in self._open:
                self._open.discard(fact.job_id)
            else:
                self._early.add(fact.job_id)

    async def _submit(self, arrival: Arrival) -> None:
        key = f"{arrival.at_s}/{arrival.job.name}"
        while True:
            try:
                answer = await self._stage.seat("admission").ask(Submit(job=arrival.job, key=key))
            except Unavailable:  # it was killed: the same key makes asking again harmless
                await self._stage.clock.sleep(RETRY_S)
            else:
                break
        if isinstance(answer, Submitted) and answer.job_id not in self._early:
            self._open.add(answer.job_id)
