"""A store made anew, without a service around it."""

from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from schemas.archive import header_of
from schemas.base import Event
from schemas.events import JobProfiled
from schemas.questions import ImportStore
from schemas.samples import ThroughputObserved
from services.estimator.folds import FOLDS, fold
from services.estimator.state import State
from services.estimator.store.archive import enter
from services.estimator.store.duckdb_store import DuckDbStore
from shared.domain import gangs

LINES_AT_ONCE = 10_000


def rebuilt(
    path: Path, facts: Iterable[Event], samples: Iterable[ThroughputObserved], half_life_s: float
) -> int:
    """Make the file out of what is logged; how many observations there were.

    Time modules and executions follow from facts, evidence from samples in their order. Loading that running
    refined, and corrections, are learnt again. Raises StoreUnavailable.
    """
    store, state = DuckDbStore(str(path), half_life_s), State()
    try:
        for fact in facts:
            _learn(store, state, fact)
        seen = (one for one in samples if gangs.observed(one.gang) and gangs.paced(one.gang))
        return sum(_entered(store, page) for page in iter(lambda: list(islice(seen, LINES_AT_ONCE)), []))
    finally:
        store.close()


def _learn(store: DuckDbStore, state: State, fact: Event) -> None:
    """As the core has it done."""
    if type(fact) not in FOLDS:
        return
    moved, execution = fold(state, fact)
    if isinstance(fact, JobProfiled) and moved:
        store.keep(state.jobs[fact.job_id].spec.workload, fact.modules)
    if execution is not None:
        store.log([execution])


def _entered(store: DuckDbStore, page: list[ThroughputObserved]) -> int:
    new = store.unknown(page)
    store.add(new)
    return len(new)


def from_export(path: Path, export: Iterable[bytes], half_life_s: float) -> int:
    """Make the file out of an export's lines, the header first; how many there were.

    Raises ValueError with the line that is none, StoreUnavailable.
    """
    lines = iter(export)
    header_of(next(lines, b""))
    store, entered = DuckDbStore(str(path), half_life_s), 0
    try:
        while page := tuple(islice(lines, LINES_AT_ONCE)):
            taken = enter(store, ImportStore(lines=page))
            if taken.wrong is not None:
                raise ValueError(f"line {entered + taken.wrong[0] + 2}: {taken.wrong[1]}")
            entered += len(page)
    finally:
        store.close()
    return entered
