"""What the doors cost: the same jobs and the same facts with and without them, in turns.

The CPU seconds of all processes together say more than the clock does where others share the machine.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from hopyard.lab.bench.figures import Benchmark, Grid, quantile
from hopyard.lab.bench.stack.dispatch import Dispatched, dispatched
from hopyard.lab.bench.stack.guard import Guard, with_accounts, with_tls, with_tokens
from hopyard.lab.bench.stack.submissions import Taken, taken_in
from hopyard.local.processes import Say

JOBS = 1_000
FACTS = 3_000
ONE_BY_ONE = 200
P50, P99 = 0.5, 0.99
MAKERS: Sequence[Callable[[Path], Guard]] = (with_tokens, with_accounts, with_tls)
"""an API without tokens there is not"""


class Turn(NamedTuple):
    guard: str
    taken: Taken
    dispatched: Dispatched


class Amounts(NamedTuple):
    jobs: int
    facts: int
    one_by_one: int


async def doors(data: Path, say: Say, *, scale: float, times: int) -> Benchmark:
    """`times`: of each; the medians are shown. Raises Failure."""
    amounts = Amounts(*(max(round(usual * scale), 1) for usual in (JOBS, FACTS, ONE_BY_ONE)))
    turns = []
    for number in range(times):
        for place, make in enumerate(MAKERS):
            folder = data / f"{number}-{place}"
            guard = make(folder)
            say(f"doors: {guard.name} …")
            turns.append(await _turn(folder, guard, amounts))
    names = list(dict.fromkeys(turn.guard for turn in turns))
    return Benchmark(
        name="doors",
        conditions=f"medians of {times}, in turns: {amounts.jobs} jobs as in submissions, "
        f"{amounts.facts} facts and {amounts.one_by_one} one by one as in dispatch",
        figures=(),
        grid=Grid(columns=("figure", "unit", *names), rows=tuple(rows(turns, names, amounts))),
    )


def rows(
    turns: Sequence[Turn], names: Sequence[str], amounts: Amounts
) -> Iterator[tuple[str | float | None, ...]]:
    for what, unit, figure in figures(amounts):
        medians = [median(figure(turn) for turn in turns if turn.guard == name) for name in names]
        yield what, unit, *medians


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


async def _turn(data: Path, guard: Guard, amounts: Amounts) -> Turn:
    """`data`: that of the guard's credentials."""
    taken = await taken_in(data, amounts.jobs, guard)
    return Turn(guard.name, taken, await dispatched(data / "dispatch", *amounts[1:], guard))
