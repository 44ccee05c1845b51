"""The order of `yarn-cs`: the queue of least use, one job at a time."""

from collections.abc import Sequence
from typing import Self

from hypothesis import given
from hypothesis import strategies as st

from services.planner.policies.classical.yarn_cs import YarnCs, YarnOptions, capacities
from services.planner.policies.contract.view import View, ViewJob
from tests.services.planner.planner_builders import job, nodes, present, view

CAPACITIES = "a=3 b=0.5 c=0"
MANY = 400


def order(seen: View) -> list[str]:
    return [one.job_id for one in YarnCs(YarnOptions(capacities=CAPACITIES)).order(seen)]


def plain_order(jobs: Sequence[ViewJob]) -> list[str]:
    """The same, looking at all queues for each job."""
    part = capacities(CAPACITIES)
    found = [one for one in jobs if one.present]
    waiting = [one for one in jobs if not one.present]
    used = {one.project: 0 for one in jobs}
    for one in found:
        assert one.present
        used[one.project] += one.present.gang.gpus
    while waiting:
        least = min(
            {one.project for one in waiting}, key=lambda name: (used[name] / part.get(name, 1.0), name)
        )
        one = next(each for each in waiting if each.project == least)
        waiting.remove(one)
        found.append(one)
        used[least] += one.demand[0]
    return [one.job_id for one in found]


PARTS = st.tuples(st.sampled_from("abcdef"), st.integers(1, 4), st.booleans())


@given(st.lists(PARTS, max_size=20))
def test_the_queue_that_uses_the_least_of_its_capacity_is_always_next(
    parts: list[tuple[str, int, bool]],
) -> None:
    jobs = [
        job(f"j{number}", (gpus,), project=project, present=present(a0=gpus) if runs else None)
        for number, (project, gpus, runs) in enumerate(parts)
    ]
    assert order(view(jobs, nodes(80))) == plain_order(jobs)


class Counted(str):
    """A project that counts how often any of its kind is compared with another."""

    __slots__ = ()
    __hash__ = str.__hash__
    times = 0

    def __eq__(self, other: object) -> bool:
        Counted.times += 1
        return str.__eq__(self, other)

    def __lt__(self, other: Self | str) -> bool:
        Counted.times += 1
        return str.__lt__(self, other)


def test_a_job_is_not_compared_with_every_project() -> None:
    """As many projects as jobs: a few comparisons for each job, not one with each project."""
    jobs = [job(f"j{number}", project=Counted(f"p{number:03}")) for number in range(MANY)]
    seen = view(jobs, nodes(8))
    Counted.times = 0
    assert len(order(seen)) == MANY
    assert Counted.times < 60 * MANY
