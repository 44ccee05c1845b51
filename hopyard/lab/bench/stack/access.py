"""What accounts and TLS cost: the same jobs and facts with tokens alone, with accounts, and with TLS too.

The three run side by side, and take turns in small slices. Where other programs share the machine, the CPU
seconds of all processes say more than the clock.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

from hopyard.lab.bench.figures import Benchmark, Grid, quantile
from hopyard.lab.bench.stack.dispatch import Dispatched, dispatching
from hopyard.lab.bench.stack.guard import Guard, with_accounts, with_tls, with_tokens
from hopyard.lab.bench.stack.submissions import SubmissionTimes, accepting_jobs
from hopyard.local.processes import Say

SLICES = 8
"""slices of a measurement, for each of `times`"""
JOBS = 100
FACTS = 300
ONE_BY_ONE = 20
"""in a slice: jobs, facts at once, and facts one by one"""
P50, P99 = 0.5, 0.99
MAKERS: Sequence[Callable[[Path], Guard]] = (with_tokens, with_accounts, with_tls)
"""guards to compare; all have tokens, since no API starts without"""


class Turn(NamedTuple):
    taken: SubmissionTimes
    dispatched: Dispatched


class Amounts(NamedTuple):
    jobs: int
    facts: int
    one_by_one: int


async def access(data: Path, say: Say, *, scale: float, times: int) -> Benchmark:
    """Measure all of them side by side, so that other load on the machine falls on all alike.

    Raises Failure.
    """
    amounts = Amounts(*(max(round(usual * scale), 1) for usual in (JOBS, FACTS, ONE_BY_ONE)))
    async with AsyncExitStack() as stack:
        sides = [await stack.enter_async_context(_side(data / str(n), make)) for n, make in enumerate(MAKERS)]
        rounds = []
        for number in range(SLICES * times):
            say(f"access: slice {number + 1} of {SLICES * times} …")
            first = number % len(sides)
            turns = {side.name: await side.turn(amounts) for side in (*sides[first:], *sides[:first])}
            rounds.append([turns[side.name] for side in sides])
    base, *others = (side.name for side in sides)
    return Benchmark(
        name="access",
        conditions=f"{len(rounds)} slices of each in turns: {amounts.jobs} jobs as in submissions, "
        f"{amounts.facts} facts and {amounts.one_by_one} one by one as in dispatch; medians, and of the "
        "others medians of their ratios to the first in the same round",
        figures=(),
        grid=Grid(
            columns=("figure", "unit", base, *(f"{name}, ratio" for name in others)),
            rows=tuple(rows(rounds[1:] or rounds, amounts)),  # the first warms up
        ),
    )


def rows(rounds: Sequence[Sequence[Turn]], amounts: Amounts) -> Iterator[tuple[str | float | None, ...]]:
    """`rounds`: each has a turn of every guard, in the same order."""
    for what, unit, figure in figures(amounts):
        base, *others = zip(*([figure(turn) for turn in turns] for turns in rounds), strict=True)
        ratios = [median(a / b for a, b in zip(other, base, strict=True) if b) for other in others]
        yield what, unit, median(base), *ratios


def figures(amounts: Amounts) -> Sequence[tuple[str, str, Callable[[Turn], float]]]:
    jobs, facts, _ = amounts
    return (
        ("durable submissions", "1/s", lambda turn: jobs / turn.taken.took_s),
        ("answer p50", "ms", lambda turn: 1e3 * quantile(turn.taken.times_s, P50)),
        ("answer p99", "ms", lambda turn: 1e3 * quantile(turn.taken.times_s, P99)),
        ("CPU of a submission", "ms", lambda turn: 1e3 * turn.taken.cpu_s / jobs),
        ("facts published", "1/s", lambda turn: facts / turn.dispatched.stored_s),
        ("facts published and read", "1/s", lambda turn: facts / turn.dispatched.read_s),
        ("CPU of a fact", "ms", lambda turn: 1e3 * turn.dispatched.cpu_s / facts),
        ("one fact, published to read p50", "ms", lambda turn: 1e3 * quantile(turn.dispatched.times_s, P50)),
    )


class Side(NamedTuple):
    """Services with one kind of guard."""

    name: str
    take: Callable[[int], Awaitable[SubmissionTimes]]
    dispatch: Callable[[int, int], Awaitable[Dispatched]]

    async def turn(self, amounts: Amounts) -> Turn:
        return Turn(await self.take(amounts.jobs), await self.dispatch(*amounts[1:]))


@asynccontextmanager
async def _side(data: Path, make: Callable[[Path], Guard]) -> AsyncIterator[Side]:
    guard = make(data)
    async with accepting_jobs(data, guard) as take, dispatching(data / "dispatch", guard) as dispatch:
        yield Side(guard.name, take, dispatch)
