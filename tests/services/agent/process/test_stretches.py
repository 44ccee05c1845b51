"""Messages of rank 0 are summed up, however many a stretch has."""

import pickle

import pytest

from services.agent.process.gang.messages import ObservedMessage
from services.agent.process.gang.stretches import Stretches
from tests.services.agent.process.process_bench import order

HALF_A_SECOND = ObservedMessage(samples=1.0, seconds=0.5, iterations=5, batch=64.0, data_s=((0.001,),))


def test_a_stretch_of_days_takes_no_more_memory_than_one_of_minutes() -> None:
    stretches, sizes = Stretches(order(), 1e6), []
    for count in (100, 10_000):
        for _ in range(count):
            assert stretches.add(HALF_A_SECOND) is None
        sizes.append(len(pickle.dumps(stretches)))
    assert sizes[1] == sizes[0]


def test_each_stretch_is_as_long_as_all_before_it() -> None:
    stretches = Stretches(order(), 10.0)
    found = [one for _ in range(160) if (one := stretches.add(HALF_A_SECOND))]
    assert [one.seconds for one in found] == [10.0, 10.0, 20.0, 40.0]
    assert [one.stretch.throughput for one in found] == pytest.approx([640.0] * 4)
    assert stretches.rest() is None
