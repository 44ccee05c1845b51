"""An agent's samples are believed as far as the placer's orders bear them out."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from schemas.base import Event
from schemas.ids import Fingerprint, GpuType, JobId, NodeId, PlacementId
from schemas.placement import Gang, Proportional
from schemas.samples import ThroughputObserved
from services.estimator.belief import ENDED_KEPT, Ended, believed, note
from shared.domain import accuracy
from shared.domain.accuracy import Executions
from tests.fact_builders import completed, failed, joined, lost, preempted, worker_stopped
from tests.services.estimator.estimator_builders import observed, ran

NOW = 100.0
PAIR = {"a0": 1, "a1": 1}
SEEN = observed("a1", configuration=PAIR)


class Heard:
    """What is known after some facts."""

    def __init__(self, facts: Sequence[Event], kept: int = ENDED_KEPT) -> None:
        self.known, self.ended = Executions(), Ended()
        for fact in facts:
            note(self.known, self.ended, fact, kept)
            accuracy.fold(self.known, fact)

    def believes(self, seen: ThroughputObserved, now: float = NOW) -> ThroughputObserved | None:
        return believed(self.known, self.ended, seen, now)


def test_what_a_gang_was_ordered_to_run_is_believed() -> None:
    assert Heard(ran(SEEN)).believes(SEEN) is SEEN


@pytest.mark.parametrize(
    "lie",
    [
        replace(SEEN, placement_id=PlacementId("p9")),
        replace(SEEN, job_id=JobId("j9")),
        replace(SEEN, fingerprint=Fingerprint("vgg|imagenet|100|sgd|")),
        replace(SEEN, gpu_type=GpuType("B")),
        replace(SEEN, gang=Gang.of({NodeId("a1"): 1})),
        replace(SEEN, gang=Gang.of({NodeId("a0"): 1, NodeId("a1"): 1, NodeId("a2"): 1})),
        replace(SEEN, gang=replace(SEEN.gang, sync=Proportional(samples=(1, 9)))),
    ],
)
def test_what_no_order_bears_out_is_not_believed(lie: ThroughputObserved) -> None:
    assert Heard(ran(SEEN)).believes(lie) is None


def test_nothing_took_longer_than_the_time_since_the_order() -> None:
    heard = Heard(ran(SEEN, at=70.0))
    assert heard.believes(replace(SEEN, seconds=1e9)) == replace(SEEN, seconds=30.0)
    assert heard.believes(SEEN, now=70.0) is None


ENDS: list[Event] = [
    worker_stopped("j1", place="p1", node_id="a0"),
    preempted("j1", place="p1"),
    completed("j1", place="p1"),
    failed("j1", place="p1"),
    lost("a0"),
    joined("a0", life="2"),
]


@pytest.mark.parametrize("end", ENDS, ids=lambda fact: fact.tag())
def test_a_sample_may_come_after_the_end_of_its_gang(end: Event) -> None:
    heard = Heard([*ran(SEEN), end])
    assert not heard.known.running
    assert heard.believes(SEEN) is SEEN


def test_gangs_that_ended_long_ago_are_forgotten() -> None:
    first, second, third = (observed(place=f"p{n}") for n in range(3))
    ends = [worker_stopped("j1", place=f"p{n}", node_id="a0") for n in range(2)]
    heard = Heard([*ran(first, second, third), *ends], kept=1)
    assert [heard.believes(one) for one in (first, second, third)] == [None, second, third]


def test_each_copy_of_a_job_speaks_for_itself() -> None:
    copies = [observed(one, place="p1") for one in ("a0", "a1")]
    plan, *orders = ran(copies[0])
    orders += ran(copies[1])[1:]
    heard = Heard([plan, *orders, worker_stopped("j1", place="p1", node_id="a0")])
    assert [heard.believes(one) for one in copies] == copies
