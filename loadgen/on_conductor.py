"""Runs a simulation on the conductor: synchronous, without an event loop."""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from loadgen.fault_injection import Disturbance
from loadgen.open_jobs import OpenJobs
from loadgen.replay import replay
from loadgen.stack import (
    EMULATED,
    LONGEST_S,
    RETRY_S,
    Endless,
    Runners,
    WrapFactory,
    factories,
    until_s,
    unwrapped,
)
from loadgen.submissions import Submissions
from schemas.cluster import Node
from schemas.scenarios import Arrival, PolicyChange
from schemas.settings import Settings
from schemas.views import PolicyChoice
from services.admission.questions import OwnQuestion, SetPolicy
from shared.runtime.bus.contract import Record, Unavailable
from shared.runtime.bus.memory import Faults
from shared.runtime.conductor import Conductor
from shared.runtime.conductor.log import Sink


def ignored(_: Record) -> None:
    """A sink that does nothing."""


NAMED = 5
"""jobs that are named where a simulation has no end"""
DAY_S = 24 * 3600.0
YOUNG_OBJECTS = 1_000_000
"""new objects after which the garbage collector runs"""


def run(
    settings: Settings,
    nodes: Sequence[Node],
    arrivals: Sequence[Arrival],
    faults: Faults | None,
    disturb: Sequence[Disturbance],
    *,
    policies: Sequence[PolicyChange] = (),
    hear: Sink = ignored,
    runners: Runners = EMULATED,
    wrap: WrapFactory = unwrapped,
    submissions: Submissions,
) -> list[Record]:
    """All facts until every accepted job has ended, and to the end of that instant; each once.

    Jobs that the policy never places are left waiting once nothing else happens.

    `hear`: called with each fact as it is stored.
    """
    records: list[Record] = []

    def sink(record: Record) -> None:
        records.append(record)
        hear(record)

    stream(
        settings,
        nodes,
        arrivals,
        sink,
        policies=policies,
        faults=faults,
        disturb=disturb,
        runners=runners,
        wrap=wrap,
        submissions=submissions,
    )
    if faults is None and not disturb:
        return records  # then no fact is stored twice
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
    policies: Sequence[PolicyChange] = (),
    faults: Faults | None = None,
    disturb: Sequence[Disturbance] = (),
    runners: Runners = EMULATED,
    wrap: WrapFactory = unwrapped,
    submissions: Submissions,
) -> None:
    """As `run`, but call `sink` with each fact as it is stored; with `faults`, some come twice."""
    conductor = Conductor(
        factories(settings, nodes, runners, wrap), settings, faults=faults, lasting=bool(disturb)
    )
    workload = _WorkloadRun(conductor, settings, arrivals, submissions)
    conductor.log.sinks += [workload.hear, sink]
    for name in conductor.names:
        conductor.start(name)
    conductor.begin(workload.submit_all())
    conductor.begin(replay(policies, workload.choose, conductor.clock))
    for one in disturb:
        conductor.begin(_disturbance(one, conductor))
    with _seldom_collected():
        conductor.run(workload.over)


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """Run the garbage collector seldom: a run makes millions of small objects without cycles.

    With its usual settings it takes a tenth of a run's time. It skips objects from before the run, mostly
    modules.
    """
    before = gc.get_threshold()
    gc.set_threshold(YOUNG_OBJECTS, *before[1:])
    gc.freeze()
    try:
        yield
    finally:
        gc.freeze()
        gc.unfreeze()
        gc.set_threshold(*before)


async def _disturbance(disturb: Disturbance, conductor: Conductor) -> None:
    await disturb(conductor)


class _WorkloadRun:
    def __init__(
        self,
        conductor: Conductor,
        settings: Settings,
        arrivals: Sequence[Arrival],
        submissions: Submissions,
    ) -> None:
        self._conductor = conductor
        self._arrivals = arrivals
        self._until_s = until_s(arrivals)
        self._submissions = submissions
        self._submitted = False
        self._jobs = OpenJobs(settings.round_s)

    async def submit_all(self) -> None:
        await replay(self._arrivals, self._submit, self._conductor.clock)
        self._submitted = True

    def over(self) -> bool:
        if self._conductor.now > self._until_s:
            left = self._jobs.left
            some = ", ".join(left[:NAMED]) + (" …" if len(left) > NAMED else "")
            raise Endless(f"not over {LONGEST_S / DAY_S:g} days after the last job came: {some} not ended")
        return self._submitted and self._jobs.over

    def hear(self, record: Record) -> None:
        self._jobs.hear(record.event)

    async def choose(self, change: PolicyChange) -> None:
        answer = await self._ask(SetPolicy(policy=change.policy))
        assert isinstance(answer, PolicyChoice), "the policies of a scenario are found before it begins"

    async def _submit(self, arrival: Arrival) -> None:
        self._submissions.answered(arrival, await self._ask(self._submissions.of(arrival)))

    async def _ask(self, question: OwnQuestion) -> object:
        while True:
            try:
                return await self._conductor.put_to("admission", question)
            except Unavailable:  # it was killed: asking again is harmless
                await self._conductor.clock.sleep(RETRY_S)
