"""A service that lives and does not work is found; one that is idle, or could not work, is not blamed."""

import pytest

from shared.runtime.shell.progress import Progress

LIMIT_S = 10.0


class Watched:
    def __init__(self) -> None:
        self.now = 100.0
        self.progress = Progress(LIMIT_S, lambda: self.now)

    def after(self, seconds: float) -> bool:
        """Whether it counts as idle so much later."""
        self.now += seconds
        return bool(self.progress.stalled())


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_a_service_without_pending_work_may_be_idle(watched: Watched) -> None:
    assert not watched.after(1e6)


def test_work_that_does_not_end_is_owed(watched: Watched) -> None:
    watched.progress.begin(1, "Learn")
    assert not watched.after(LIMIT_S)
    assert watched.after(1.0)
    assert watched.progress.stalled() == "alive but idle: Learn is outstanding for 11 s"


def test_work_that_ends_is_not_owed(watched: Watched) -> None:
    watched.progress.begin(1, "Learn")
    watched.progress.done(1)
    assert not watched.after(1e6)


def test_work_that_is_given_up_is_owed_until_some_is_done(watched: Watched) -> None:
    watched.progress.begin(1, "Learn")
    watched.progress.give_up(1)
    assert watched.after(LIMIT_S + 1)
    watched.progress.begin(2, "Learn")
    watched.progress.done(2)
    assert not watched.after(0.0)


def test_facts_that_are_stored_and_not_read_are_owed(watched: Watched) -> None:
    watched.progress.read(5, 9)
    watched.now += LIMIT_S
    watched.progress.read(6, 9)
    assert not watched.after(1.0)
    watched.progress.read(6, 12)
    assert watched.after(LIMIT_S)
    watched.progress.read(12, 12)
    assert not watched.after(1e6)


def test_time_in_which_it_could_not_work_does_not_count(watched: Watched) -> None:
    watched.progress.begin(1, "Learn")
    watched.now += 100.0
    watched.progress.restart_limits()
    assert not watched.after(LIMIT_S)
    assert watched.after(1.0)


def test_the_last_activity_is_kept_while_other_messages_come(watched: Watched) -> None:
    assert watched.progress.last_activity == ("", None)
    watched.progress.record_activity("plan.published")
    did = watched.progress.last_activity
    watched.progress.worked()
    assert watched.progress.last_activity == did
    assert did[0] == "plan.published"
