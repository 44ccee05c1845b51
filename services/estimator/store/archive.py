"""Exports the store as lines, a page at a time, and imports them; entries that a store has are skipped."""

from collections.abc import Iterator, Sequence

import msgspec

from schemas.archive import (
    BandwidthLine,
    CorrectionLine,
    Entry,
    ExecutionLine,
    Line,
    LoadingLine,
    ObservationLine,
    TheoryLine,
    encoded,
    entry_of,
    workload_of,
)
from schemas.calibration import BandwidthRow
from schemas.questions import ExportStore, Imported, ImportStore, StorePage
from schemas.samples import ThroughputObserved
from services.estimator.store.contract import Bandwidth, Correction, Loading, Store, usable
from services.estimator.store.table import FOREVER


def page(store: Store, asked: ExportStore) -> StorePage:
    """A page of observations, as they came; the last page has all else too. Raises StoreUnavailable."""
    seen = store.observations(asked.after, asked.limit)
    lines: list[Line] = [ObservationLine(seen=one) for one in seen]
    last = len(seen) < asked.limit
    lines += _rest(store) if last else ()
    return StorePage(
        lines=tuple(encoded(line) for line in lines), next=None if last else asked.after + len(seen)
    )


def _rest(store: Store) -> Iterator[Line]:
    for fingerprint, theory in sorted(store.theory(store.workloads()).items()):
        for gpu_type, modules in sorted(theory.modules.items()):
            yield TheoryLine(fingerprint=fingerprint, gpu_type=gpu_type, modules=modules)
        for gpu_type, loading in sorted(theory.loading.items()):
            yield LoadingLine(fingerprint=fingerprint, gpu_type=gpu_type, **msgspec.structs.asdict(loading))
        for gpu_types, one in sorted(theory.corrections.items()):
            yield CorrectionLine(fingerprint=fingerprint, gpu_types=gpu_types, **msgspec.structs.asdict(one))
    for gpu_type, known in sorted(store.bandwidths().items()):
        yield BandwidthLine(row=BandwidthRow(gpu_type=gpu_type, **msgspec.structs.asdict(known)))
    for execution in store.executions():
        yield ExecutionLine(execution=execution)


def enter(store: Store, asked: ImportStore, now: float = FOREVER) -> Imported:
    """Import the whole page, or nothing if a line cannot be read. Raises StoreUnavailable."""
    entries: list[Entry] = []
    for index, line in enumerate(asked.lines):
        try:
            entries.append(entry_of(line))
        except ValueError as error:
            return Imported(entered=0, known=0, wrong=(index, str(error)))
    seen = [one.seen for one in entries if isinstance(one, ObservationLine)]
    entered = _enter_observations(store, seen, asked.newest_at, now)
    entered += sum(_enter(store, one) for one in entries if not isinstance(one, ObservationLine))
    return Imported(entered=entered, known=len(entries) - entered)


def _enter_observations(
    store: Store, seen: Sequence[ThroughputObserved], newest_at: float | None, now: float
) -> int:
    """Enter observations, which count as so much earlier that the newest of the file is not after `now`."""
    new = store.unknown([one for one in seen if usable(one)])
    newest = max([one.at for one in seen], default=0.0) if newest_at is None else newest_at
    store.add(new, now, max(newest - now, 0.0))
    return len(new)


def _enter(
    store: Store, line: TheoryLine | LoadingLine | CorrectionLine | BandwidthLine | ExecutionLine
) -> bool:
    """Enter a line; returns whether the store did not have it."""
    match line:
        case TheoryLine(fingerprint=fingerprint, gpu_type=gpu_type, modules=modules):
            known = store.theory([fingerprint]).get(fingerprint)
            if known is None or gpu_type not in known.modules:
                store.keep(workload_of(fingerprint), {gpu_type: modules})
                return True
        case LoadingLine(fingerprint=fingerprint, gpu_type=gpu_type):
            known = store.theory([fingerprint]).get(fingerprint)
            if known is not None and gpu_type not in known.loading:
                store.refine(fingerprint, gpu_type, _loading(line))
                return True
        case CorrectionLine(fingerprint=fingerprint, gpu_types=gpu_types):
            known = store.theory([fingerprint]).get(fingerprint)
            if known is not None and gpu_types not in known.corrections:
                one = Correction(factor=line.factor, observations=line.observations)
                store.correct(fingerprint, gpu_types, one)
                return True
        case BandwidthLine(row=row):
            if row.gpu_type not in store.bandwidths():
                store.calibrate({row.gpu_type: _bandwidth(row)})
                return True
        case ExecutionLine(execution=execution):
            return store.log([execution]) > 0
    return False


def _loading(line: LoadingLine) -> Loading:
    return Loading(
        waits_s=line.waits_s,
        data=line.data,
        wait_factor=line.wait_factor,
        wait_s=line.wait_s,
        iterations=line.iterations,
    )


def _bandwidth(row: BandwidthRow) -> Bandwidth:
    return Bandwidth(
        link=row.link,
        network=row.network,
        at=row.at,
        measurements=row.measurements,
        error=row.error,
        paths=row.paths,
    )
