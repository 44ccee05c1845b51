"""Where a gang goes, and who is served: what all policies by order share."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from schemas.ids import GpuType, JobId, NodeId
from schemas.placement import Configuration
from services.planner.policies.kit.gangs import Pools, Style, place, pools
from services.planner.policies.kit.rigid import Rigid, rigid
from services.planner.policies.kit.serving import QueuedJob, Room, _walk, served, walked

FAST, SLOW = GpuType("fast"), GpuType("slow")


def cluster(fast: int = 0, slow: int = 0) -> Pools:
    """Nodes `fast0`, … and `slow0`, … of 8 GPUs."""
    names = [(kind, index) for kind, count in ((FAST, fast), (SLOW, slow)) for index in range(count)]
    return pools((NodeId(f"{kind}{index}"), kind, 8) for kind, index in names)


def free(fast: tuple[int, ...] = (), slow: tuple[int, ...] = ()) -> dict[NodeId, int]:
    named = [("fast", fast), ("slow", slow)]
    return {NodeId(f"{kind}{index}"): gpus for kind, counts in named for index, gpus in enumerate(counts)}


def on(**gpus: int) -> Configuration:
    return {NodeId(name): count for name, count in gpus.items()}


@pytest.mark.parametrize(("rule", "gpus"), [("min", 1), ("median", 2), ("max", 8)])
def test_one_count_of_four(rule: Rigid, gpus: int) -> None:
    assert rigid((1, 2, 4, 8), rule) == gpus


@pytest.mark.parametrize(
    ("gpus", "idle", "style", "expected"),
    [
        (2, (8, 3, 2, 5), Style.FEWEST_NODES, on(fast2=2)),  # best fit
        (9, (2, 5, 8, 1), Style.FEWEST_NODES, on(fast2=8, fast3=1)),  # few nodes, the last by best fit
        (9, (2, 5, 8, 1), Style.FRAGMENTS, on(fast3=1, fast0=2, fast1=5, fast2=1)),
        (2, (8, 1, 1, 0), Style.FRAGMENTS, on(fast0=2)),  # one node is better than any two
        (4, (3, 3, 0, 0), Style.CONSOLIDATED, None),  # one node would do, were it empty
        (9, (4, 5, 0, 0), Style.CONSOLIDATED, on(fast1=5, fast0=4)),
        (9, (4, 4, 1, 0), Style.CONSOLIDATED, None),
        (10, (4, 4, 1, 0), Style.FEWEST_NODES, None),
    ],
)
def test_a_gang_on_one_type(
    gpus: int, idle: tuple[int, ...], style: Style, expected: Configuration | None
) -> None:
    assert place(gpus, types=[FAST], pools=cluster(4), free=free(idle), style=style) == expected


def test_a_gang_is_of_one_type_and_the_first_type_is_better() -> None:
    both = cluster(2, 2)
    assert place(2, types=[FAST, SLOW], pools=both, free=free((4, 4), (2, 2))) == on(fast0=2)
    assert place(6, types=[FAST, SLOW], pools=both, free=free((4, 4), (6, 2))) == on(slow0=6)
    assert place(12, types=[FAST, SLOW], pools=both, free=free((5, 6), (5, 6))) is None


# ---- the walk


def client(
    name: str, gpus: int, *, line: str = "", style: Style = Style.FEWEST_NODES, **held: int
) -> QueuedJob:
    return QueuedJob(job_id=JobId(name), gpus=gpus, types=(FAST,), held=on(**held), line=line, style=style)


def running(
    queue: list[QueuedJob], *idle: int, strict: bool = False, preemptive: bool = False
) -> dict[str, Configuration]:
    nodes = len(idle)
    result = served(queue, cluster(nodes), free(idle), strict=strict, preemptive=preemptive)
    assert set(result.placed) | set(result.behind) == {client.job_id for client in queue}
    return {str(job_id): where for job_id, where in result.placed.items()}


def test_skipping_starts_jobs_that_fit_and_strict_order_holds_them_up() -> None:
    queue = [client("big", 8), client("small", 1)]
    assert running(queue, 4) == {"small": on(fast0=1)}
    assert running(queue, 4, strict=True) == {}


def test_a_job_that_never_fits_does_not_hold_up_others() -> None:
    assert running([client("giant", 0), client("small", 1)], 4, strict=True) == {"small": on(fast0=1)}


def test_a_line_is_held_up_by_its_own_jobs_only() -> None:
    queue = [client("a1", 8, line="a"), client("a2", 1, line="a"), client("b1", 1, line="b")]
    assert running(queue, 4, strict=True) == {"b1": on(fast0=1)}


def test_without_preemption_running_jobs_stay_in_any_order() -> None:
    queue = [client("first", 8), client("runs", 4, fast0=4)]
    assert running(queue, 8) == {"runs": on(fast0=4)}
    assert running(queue, 8, preemptive=True) == {"first": on(fast0=8)}


def test_a_job_that_runs_on_is_not_moved_while_another_place_serves() -> None:
    queue = [client("new", 4), client("runs", 4, fast0=4)]
    assert running(queue, 4, 8, preemptive=True) == {"new": on(fast1=4), "runs": on(fast0=4)}


def test_the_place_of_a_job_that_loses_its_gpus_is_taken_first() -> None:
    """`new` could take either node; `stays` runs on, `goes` cannot."""
    queue = [client("new", 8), client("stays", 8, fast0=8), client("goes", 8, fast1=8)]
    assert running(queue, 8, 8, preemptive=True) == {"new": on(fast1=8), "stays": on(fast0=8)}


def test_a_job_that_runs_on_is_moved_where_nothing_else_makes_room() -> None:
    spread = [client("new", 8), client("runs", 2, fast0=2)]
    assert running(spread, 8, 4, preemptive=True) == {"new": on(fast0=6, fast1=2), "runs": on(fast0=2)}
    whole = [client("new", 8, style=Style.CONSOLIDATED), client("runs", 2, fast0=2)]
    assert running(whole, 8, 4, preemptive=True) == {"new": on(fast0=8), "runs": on(fast1=2)}


def test_the_place_of_a_job_that_stops_is_left_to_the_job_that_can_run_only_there() -> None:
    """`either` would take `fast0` if it could; where nobody is in need, nobody is moved either."""
    queue = [
        QueuedJob(job_id=JobId("either"), gpus=8, types=(FAST, SLOW)),
        client("fast", 8),
        client("runs", 8, fast0=8),
        QueuedJob(job_id=JobId("slow"), gpus=8, types=(SLOW,)),
        QueuedJob(job_id=JobId("stays"), gpus=8, types=(SLOW,), held=on(slow0=8)),
        QueuedJob(job_id=JobId("goes"), gpus=8, types=(SLOW,), held=on(slow1=8)),
    ]
    result = served(queue, cluster(1, 3), free((8,), (8, 8, 8)), strict=False, preemptive=True)
    assert result.placed == {
        "either": on(slow1=8),
        "fast": on(fast0=8),
        "slow": on(slow2=8),
        "stays": on(slow0=8),
    }


@some.composite
def queues(draw: some.DrawFn) -> list[QueuedJob]:
    """Some jobs run where there may be room for them all, on four nodes of 8 GPUs; others wait."""
    clients = []
    for index in range(draw(some.integers(0, 9))):
        gpus = draw(some.sampled_from((0, 1, 2, 4, 8, 12)))
        node = draw(some.sampled_from(("", "", "fast0", "fast1", "slow0", "slow1", "gone")))
        client = QueuedJob(
            job_id=JobId(f"{index}"),
            gpus=gpus,
            types=draw(some.sampled_from(((FAST,), (SLOW,), (FAST, SLOW), ()))),
            held=on(**{node: min(gpus, 8)}) if node and gpus else {},
            style=draw(some.sampled_from(Style)),
            line=draw(some.sampled_from(("", "other"))),
        )
        clients.append(client)
    return clients


@given(queue=queues(), strict=some.booleans(), preemptive=some.booleans())
def test_where_no_job_is_moved_the_shorter_walk_gives_the_same_result(
    *, queue: list[QueuedJob], strict: bool, preemptive: bool
) -> None:
    idle = free((8, 8), (8, 8))
    short = served(queue, cluster(2, 2), idle, strict=strict, preemptive=preemptive)
    whole = walked(queue, cluster(2, 2), idle, strict=strict, preemptive=preemptive)
    assert list(short.placed.items()) == list(whole.placed.items())
    assert list(short.behind.items()) == list(whole.behind.items())


@given(queue=queues())
def test_no_job_that_the_first_walk_placed_is_lost(*, queue: list[QueuedJob]) -> None:
    idle = free((8, 8), (8, 8))
    running = {job.job_id: job.held for job in queue if job.held}
    first = _walk(queue, Room(cluster(2, 2), idle, running), strict=False)
    whole = walked(queue, cluster(2, 2), idle, strict=False, preemptive=True)
    assert first.placed.keys() <= whole.placed.keys()
