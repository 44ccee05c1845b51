"""Every round that the authors' simulator recorded, decided by the shipped policy from views."""

import pytest

from tests.services.planner.policies.sia.sia_replay import Json, counts, rounds, theirs
from tests.services.planner.policies.sia.test_golden import instances

SINGLE = 1e-7
"""utilities are hundredths in single precision: two choices that are equal to two decimals differ by less,
and the authors' solver does not always find the better one"""


@pytest.mark.parametrize("case", instances("sia_end_to_end.json"))
def test_every_round_is_the_authors(case: Json) -> None:
    """Who gets how many GPUs of which type, on which nodes; where several choices are best, an equal one."""
    for record, ours in rounds(case):
        assert ours.objective == pytest.approx(record["objective"], abs=SINGLE)
        same = counts(ours.places) == counts(theirs(record))
        no_worse = ours.objective < record["objective"] + 1e-9
        assert same or no_worse or not record["solution_unique"]
        assert not same or ours.places == theirs(record)
