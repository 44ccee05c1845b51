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
    OnAnswer,
    Runners,
    WrapFactory,
    factories,
    ignored_answer,
    unwrapped,
)
from schemas.cluster import Node
from schemas.scenarios import Arrival, PolicyChange
from schemas.settings import Settings
from schemas.views import PolicyChoice
from services.admission.questions import OwnQuestion, SetPolicy, Submit
from shared.runtime.bus.contract import Record, Unavailable
from shared.runtime.bus.memory import Faults
from shared.runtime.conductor import Conductor
from shared.runtime.conductor.log import Sink


def ignored(_: Record) -> None:
    """A sink that ignores facts."""


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
    on_answer: OnAnswer = ignored_answer,
) -> list[Record]:
    """All facts until every accepted job has ended, and to the end of that instant; each once.

    Jobs that the policy never places are left waiting once nothing else happens.

    `hear`: each as it is stored.
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
        on_answer=on_answer,
    )
    if faults is None and not disturb:
        return records  # none is stored twice
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
    on_answer: OnAnswer = ignored_answer,
) -> None:
    """As `run`, each fact to `sink` as it is stored; with `faults`, some twice."""
    stage = Conductor(
        factories(settings, nodes, runners, wrap), settings, faults=faults, lasting=bool(disturb)
    )
    workload = _WorkloadRun(stage, on_answer)
    stage.log.sinks += [workload.hear, sink]
    for name in stage.names:
        stage.start(name)
    stage.begin(workload.submit_all(arrivals))
    stage.begin(replay(policies, workload.choose, stage.clock))
    for one in disturb:
        stage.begin(_disturbance(one, stage))
    with _rarely_collected():
        stage.run(workload.over)


@contextmanager
def _rarely_collected() -> Iterator[None]:
    """Run the garbage collector seldom: a run makes millions of small objects without cycles.

    With its usual settings it takes a tenth of a run's time. Objects from before the run, modules above all,
    are not looked at.
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


async def _disturbance(disturb: Disturbance, stage: Conductor) -> None:
    await disturb(stage)


class _WorkloadRun:
    def __init__(self, stage: Conductor, on_answer: OnAnswer) -> None:
        self._stage = stage
        self._on_answer = on_answer
        self._submitted = False
        self._jobs = OpenJobs()

    async def submit_all(self, arrivals: Sequence[Arrival]) -> None:
        await replay(arrivals, self._submit, self._stage.clock)
        self._submitted = True

    def over(self) -> bool:
        if self._stage.now > LONGEST_S:
            raise TimeoutError(f"not over after {LONGEST_S:g} s")
        return self._submitted and self._jobs.over

    def hear(self, record: Record) -> None:
        self._jobs.hear(record.event)

    async def choose(self, change: PolicyChange) -> None:
        answer = await self._ask(SetPolicy(policy=change.policy))
        assert isinstance(answer, PolicyChoice), "the policies of a scenario are found before it begins"

    async def _submit(self, arrival: Arrival) -> None:
        self._on_answer(await self._ask(Submit(job=arrival.job, key=f"{arrival.at_s}/{arrival.job.name}")))

    async def _ask(self, question: OwnQuestion) -> object:
        while True:
            try:
                return await self._stage.put_to("admission", question)
            except Unavailable:  # it was killed: asking again is harmless
                await self._stage.clock.sleep(RETRY_S)
