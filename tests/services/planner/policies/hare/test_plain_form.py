"""Shares of GPUs on clusters of alike nodes: the same as in the plain form, and by looking at few of them."""

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise

import msgspec
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from services.planner.policies.hare.blocks import blocks
from services.planner.policies.hare.parts import BlockJob, HareRoom, Held
from tests.services.planner.policies.hare.plain_form import plain_blocks

TENTHS = st.integers(1, 40).map(lambda tenths: tenths / 10)
SHARES = st.sampled_from([0.0, 0.3, 0.7])


class Site(msgspec.Struct, frozen=True):
    """Nodes whose GPUs have two kinds and whose exchanges take two times."""

    nodes: list[list[int]]
    kinds: list[int]
    alike: list[int]

    def node(self, gpu: int) -> int:
        return next(number for number, own in enumerate(self.nodes) if gpu in own)


class Problem(msgspec.Struct, frozen=True):
    site: Site
    jobs: list[BlockJob]
    held: list[Held]


@st.composite
def sites(draw: st.DrawFn) -> Site:
    ends = list(accumulate(draw(st.lists(st.integers(1, 4), min_size=1, max_size=6)), initial=0))
    nodes = [list(range(first, end)) for first, end in pairwise(ends)]
    of_nodes = [draw(st.integers(0, 1)) for _ in nodes]
    kinds = [kind for kind, own in zip(of_nodes, nodes, strict=True) for _ in own]
    if draw(st.booleans()):
        kinds = [draw(st.integers(0, 1)) for _ in kinds]
    return Site(nodes, kinds, [draw(st.integers(0, 1)) for _ in nodes])


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    site = draw(sites())
    gpus = len(site.kinds)
    cuts = sorted(draw(st.sets(st.integers(0, gpus), max_size=5)))
    count = draw(st.integers(1, 9))
    owners = draw(st.permutations(range(count)))
    held = [
        Held(gpus=tuple(range(first, end)), jobs=frozenset({job}), open=draw(st.integers(0, 2)) > 0)
        for (first, end), job in zip(pairwise(cuts), owners, strict=False)
    ]
    own = {job: one for one in held for job in one.jobs}
    return Problem(site, [draw(jobs(site, own.get(number))) for number in range(count)], held)


@st.composite
def jobs(draw: st.DrawFn, site: Site, own: Held | None) -> BlockJob:
    warm = frozenset(draw(st.sets(st.sampled_from(range(len(site.kinds))), max_size=3)))
    nodes = {site.node(gpu) for gpu in (warm if own is None else own.gpus)}
    mine = frozenset(gpu for node in nodes for gpu in site.nodes[node])
    return BlockJob(
        tasks=draw(st.integers(1, 5)),
        task_s=[draw(TENTHS), draw(st.sampled_from([float("inf"), 1.0, draw(TENTHS)]))],
        exchange_s=exchange(site, draw(st.sampled_from([0.0, 0.3, 2.0]))),
        worth=draw(TENTHS),
        moving_s=draw(st.sampled_from([0.0, 1.0, 15.0])),
        switching_s=draw(st.sampled_from([0.0, 2.0])),
        stands_by=warm.issuperset,
        memory=[draw(SHARES), draw(SHARES)],
        own_node_gpus=mine,
        near=mine | {gpu for one in warm for gpu in site.nodes[site.node(one)]},
    )


def exchange(site: Site, once_s: float) -> Callable[[Sequence[int]], float]:
    def exchange_s(gpus: Sequence[int]) -> float:
        nodes = {site.node(gpu) for gpu in gpus}
        slowest = max(site.alike[node] for node in nodes)
        return once_s * (1 + slowest) * (1.5 if len(nodes) > 1 else 1.0) * (1 - 1 / (1 + len(gpus)))

    return exchange_s


def by_gpu(job: BlockJob, kinds: Sequence[int]) -> BlockJob:
    return msgspec.structs.replace(
        job, task_s=[job.task_s[kind] for kind in kinds], memory=[job.memory[kind] for kind in kinds]
    )


def plan(rooms: Sequence[HareRoom]) -> list[tuple[object, ...]]:
    return [(room.gpus, room.held, room.open, room.blocks) for room in rooms]


@given(problems())
@limits(max_examples=120, deadline=None)
def test_plans_are_those_of_the_plain_form(problem: Problem) -> None:
    site = problem.site
    plain = plain_blocks([by_gpu(job, site.kinds) for job in problem.jobs], site.nodes, problem.held)
    found = blocks(problem.jobs, site.nodes, problem.held, kinds=site.kinds, alike=site.alike)
    assert plan(found) == plan(plain)


@given(problems())
@limits(max_examples=100, deadline=None)
def test_in_a_hurry_jobs_stay_or_start_on_idle_gpus(problem: Problem) -> None:
    site = problem.site
    own = {job: one.gpus for one in problem.held for job in one.jobs}
    rooms = blocks(
        problem.jobs, site.nodes, problem.held, kinds=site.kinds, alike=site.alike, hurries=lambda: True
    )
    for room in rooms:
        [block] = room.blocks
        assert block.tasks.keys() <= set(own.get(block.job, block.tasks))


def test_of_many_alike_nodes_few_are_looked_at() -> None:
    """By how often the time of an exchange is asked for, which is once for each look."""
    nodes = [list(range(first, first + 4)) for first in range(0, 400, 4)]
    looks = 0

    def exchange_s(gpus: Sequence[int]) -> float:
        nonlocal looks
        looks += 1
        return 1.0 if len(gpus) > 1 else 0.0

    jobs = [BlockJob(tasks=8, task_s=[1.0], exchange_s=exchange_s, near=frozenset()) for _ in range(50)]
    assert len(blocks(jobs, nodes, kinds=[0] * 400, alike=[0] * 100)) == len(jobs)
    assert looks < 10 * len(jobs)
