"""A sender of many requests delays only its own."""

from shared.runtime.bus.fair_queue import FairQueue


def queue(at_once: int = 2, at_once_of_one: int = 1, waiting_of_one: int = 3) -> FairQueue[int]:
    return FairQueue(at_once=at_once, at_once_of_one=at_once_of_one, waiting_of_one=waiting_of_one)


def test_each_sender_has_its_turn_behind_any_number_of_messages() -> None:
    some = queue(at_once=10, at_once_of_one=10)
    for what in range(3):
        some.put("flood", what)
    some.put("other", 9)
    assert [some.next() for _ in range(5)] == [("flood", 0), ("other", 9), ("flood", 1), ("flood", 2), None]


def test_one_sender_has_no_more_in_work_than_its_share() -> None:
    some = queue()
    some.put("flood", 1)
    some.put("flood", 2)
    assert some.next() == ("flood", 1)
    assert some.next() is None
    some.put("other", 9)
    assert some.next() == ("other", 9)
    some.done("flood")
    assert some.next() == ("flood", 2)


def test_all_together_have_no_more_in_work_than_there_is_room_for() -> None:
    some = queue(at_once=1)
    some.put("a", 1)
    some.put("b", 2)
    assert some.next() == ("a", 1)
    assert some.next() is None
    some.done("a")
    assert some.next() == ("b", 2)


def test_messages_beyond_the_limit_are_dropped() -> None:
    some = queue(waiting_of_one=1)
    assert some.put("flood", 1)
    assert not some.put("flood", 2)
    assert some.put("other", 3)
