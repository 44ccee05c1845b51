"""Rebuilds the store's file from logged facts and samples, or from an export, without a service."""

from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from schemas.accuracy import Execution
from schemas.archive import header_of
from schemas.base import Event
from schemas.events import JobProfiled, JobTypeProfiled
from schemas.questions import ImportStore
from schemas.samples import ThroughputObserved
from services.estimator.belief import believed, note
from services.estimator.folds import FOLDS, fold
from services.estimator.state import State
from services.estimator.store.archive import enter
from services.estimator.store.contract import keep_profile, usable
from services.estimator.store.duckdb_store import DuckDbStore
from services.estimator.store.table import FOREVER
from shared.domain import gangs

LINES_AT_ONCE = 10_000


class Remake:
    """Fills a new store from facts and samples, given one by one in the order of the log.

    Time modules and executions come from facts, evidence from the samples that are believed by all facts.
    Refined loading and corrections are not rebuilt: the estimator learns them again as jobs run. All methods
    raise StoreUnavailable.
    """

    def __init__(self, path: Path, half_life_s: float, *, counts: bool, now: float = FOREVER) -> None:
        """`counts`: see `table_of`. `now`: cluster time; no sample is later."""
        self._now = now
        self.facts = 0
        self.observations = 0
        self._store, self._state = DuckDbStore(str(path), half_life_s, counts=counts), State()
        self._executions: list[Execution] = []
        self._samples: list[ThroughputObserved] = []

    def learn(self, fact: Event) -> None:
        """Fold a fact, and write what the estimator would write after it."""
        self.facts += 1
        if type(fact) not in FOLDS:
            return
        note(self._state.executions, self._state.ended, fact, kept=FOREVER)
        moved, execution = fold(self._state, fact)
        if isinstance(fact, JobProfiled | JobTypeProfiled) and moved:
            job = self._state.jobs[fact.job_id]
            keep_profile(self._store, job.spec.workload, job.modules, known=job.queued)
        if execution is not None:
            self._executions.append(execution)
            if len(self._executions) == LINES_AT_ONCE:
                self._log()

    def observe(self, sample: ThroughputObserved) -> None:
        if not (usable(sample) and gangs.paced(sample.gang)):
            return
        counted = believed(self._state.executions, self._state.ended, sample, self._now)
        if counted is not None:
            self._samples.append(counted)
            if len(self._samples) == LINES_AT_ONCE:
                self._add()

    def close(self) -> None:
        try:
            self._log()
            self._add()
        finally:
            self._store.close()

    def _log(self) -> None:
        self._store.log(self._executions)
        self._executions.clear()

    def _add(self) -> None:
        new = self._store.unknown(self._samples)
        self._store.add(new, self._now)
        self.observations += len(new)
        self._samples.clear()


def from_export(path: Path, export: Iterable[bytes], half_life_s: float, *, counts: bool) -> int:
    """Make the file from the lines of an export, the header first. Returns the number of lines.

    `counts`: see `table_of`. Raises StoreUnavailable, and ValueError with the number of an unreadable line.
    """
    lines = iter(export)
    header_of(next(lines, b""))
    store, entered = DuckDbStore(str(path), half_life_s, counts=counts), 0
    try:
        while page := tuple(islice(lines, LINES_AT_ONCE)):
            taken = enter(store, ImportStore(lines=page))
            if taken.wrong is not None:
                raise ValueError(f"line {entered + taken.wrong[0] + 2}: {taken.wrong[1]}")
            entered += len(page)
    finally:
        store.close()
    return entered
