"""Who gets which groups, on hand-made orders: what is kept, taken, given up and added."""

from collections.abc import Iterable

import numpy as np

from services.planner.policies.hlas.service import Claimant, served

GROUPS = 6


def claims(
    need: int,
    *held: int,
    usable: Iterable[int] = range(GROUPS),
    warm: Iterable[int] = (),
    fixed: bool | None = None,
) -> Claimant:
    table = np.isin(np.arange(GROUPS), list(usable))
    one = {"need": need, "usable": table, "held": held, "warm": frozenset(warm)}
    return Claimant(**one) if fixed is None else Claimant(**one, fixed=fixed)  # type: ignore[arg-type]


def test_those_that_wait_come_before_those_that_lack_groups() -> None:
    order = [claims(3, 0), claims(2)]
    assert served(order, [1, 2]) == [(0,), (1, 2)]
    assert served(order, [1, 2, 3]) == [(0, 3), (1, 2)]
    assert served(order, [1, 2], partial_first=True) == [(0, 1, 2), ()]


def test_a_running_job_gets_what_it_lacks_and_no_more() -> None:
    assert served([claims(4, 0)], [1, 2, 3, 4, 5]) == [(0, 1, 2, 3)]
    assert served([claims(2, 0, 1, 2)], [3, 4, 5]) == [(0, 1, 2)]
    assert served([claims(2, 0, 1)], [2]) == [(0, 1)]


def test_the_last_that_runs_behind_gives_up_its_groups() -> None:
    assert served([claims(1), claims(2, 0, 1), claims(2, 2, 3)], []) == [(2,), (0, 1), (3,)]
    assert served([claims(2), claims(2, 0, 1), claims(2, 2, 3)], []) == [(2, 3), (0, 1), ()]
    assert served([claims(3), claims(2, 0, 1), claims(2, 2, 3)], []) == [(2, 3), (0, 1), ()]


def test_one_that_gave_all_up_takes_from_those_behind_it_no_more() -> None:
    """The second and the third lose their groups to the first and to the second."""
    assert served([claims(2), claims(2), claims(2, 0, 1), claims(2, 2, 3)], []) == [(2, 3), (0, 1), (), ()]


def test_no_job_takes_from_one_before_it() -> None:
    """Behind it a job has a group that it cannot use."""
    order = [claims(1, 0), claims(1, usable=[0]), claims(1, 1)]
    assert served(order, []) == [(0,), (), (1,)]


def test_a_job_takes_only_groups_that_it_can_use() -> None:
    assert served([claims(3, usable=[1, 4])], [0, 1, 2, 4]) == [(1, 4)]
    assert served([claims(2, usable=[0]), claims(2, 0, 1), claims(1, 2)], []) == [(0,), (1,), (2,)]


def test_groups_where_it_is_warm_come_first() -> None:
    assert served([claims(2, warm=[3])], [1, 2, 3]) == [(1, 3)]
    assert served([claims(1, warm=[3]), claims(2, 2, 3)], []) == [(3,), (2,)]


def test_a_job_that_may_not_be_moved_neither_gives_nor_gets() -> None:
    assert served([claims(1), claims(2, 0, fixed=True)], []) == [(), (0,)]
    assert served([claims(2, 0, fixed=True)], [1]) == [(0,)]
    assert served([claims(2, 0, fixed=True)], [1], partial_first=True) == [(0,)]
    assert served([claims(2, fixed=True), claims(1)], [1]) == [(), (1,)]


def test_idle_groups_that_a_job_cannot_use_do_not_keep_it_from_others() -> None:
    assert served([claims(1, usable=[1]), claims(1, 1)], [0]) == [(1,), (0,)]
