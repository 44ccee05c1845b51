"""Exports the store as lines, a page at a time, and imports them; entries that a store has are skipped."""

from collections.abc import Iterator, Sequence
from itertools import islice

import msgspec

from schemas.archive import (
    BandwidthLine,
    CorrectionLine,
    Entry,
    ExecutionLine,
    Line,
    LoadingLine,
    NodeLine,
    ObservationLine,
    TheoryLine,
    encoded,
    entry_of,
    workload_of,
)
from schemas.calibration import BandwidthRow
from schemas.cluster import Node
from schemas.questions import ExportStore, Imported, ImportStore, StorePage
from schemas.samples import ThroughputObserved
from services.estimator.store.contract import Bandwidth, Correction, Loading, Store, usable
from services.estimator.store.table import FOREVER
from shared.domain import gangs

PAGE_BYTES = 8 * 2**20
"""bytes of lines from which on a page is full; messages may have 64 MiB"""
THEORY, LOG = 2**50, 2**51
"""places from which on an export has what is known beside observations, and the prediction log"""


OfWorkload = TheoryLine | LoadingLine | CorrectionLine


def page(store: Store, asked: ExportStore, cluster: Sequence[Node] = ()) -> StorePage:
    """A page of the export; `cluster`: all nodes that ever joined. Raises StoreUnavailable.

    It skips nothing, whatever comes between two pages: a line keeps its place, or moves to a later one.
    """
    lines: list[bytes] = []
    size = 0
    for place, line in _placed(store, cluster, asked.after, asked.limit):
        lines.append(encoded(line))
        size += len(lines[-1])
        if len(lines) == asked.limit or size >= PAGE_BYTES:
            return StorePage(lines=tuple(lines), next=place + 1)
    return StorePage(lines=tuple(lines), next=None)


def _placed(store: Store, cluster: Sequence[Node], after: int, limit: int) -> Iterator[tuple[int, Line]]:
    """Lines from a place on, with their places; of observations and executions at most `limit`."""
    if after < THEORY:
        seen = [ObservationLine(seen=one) for one in store.observations(after, limit)]
        yield from enumerate(seen, start=max(after, store.dropped()))
    if after < LOG:
        first = max(after, THEORY)
        yield from enumerate(islice(_known(store, cluster), first - THEORY, None), start=first)
    first = max(after, LOG)
    log = [ExecutionLine(execution=one) for one in store.logged(first - LOG, limit)]
    yield from enumerate(log, start=first)


def _known(store: Store, cluster: Sequence[Node]) -> Iterator[Line]:
    for fingerprint, theory in sorted(store.theory(store.workloads()).items()):
        for gpu_type, modules in sorted(theory.modules.items()):
            yield TheoryLine(fingerprint=fingerprint, gpu_type=gpu_type, modules=modules)
        for gpu_type, loading in sorted(theory.loading.items()):
            yield LoadingLine(fingerprint=fingerprint, gpu_type=gpu_type, **msgspec.structs.asdict(loading))
        for gpu_types, one in sorted(theory.corrections.items()):
            yield CorrectionLine(fingerprint=fingerprint, gpu_types=gpu_types, **msgspec.structs.asdict(one))
    for gpu_type, known in sorted(store.bandwidths().items()):
        yield BandwidthLine(row=BandwidthRow(gpu_type=gpu_type, **msgspec.structs.asdict(known)))
    for node in cluster:
        yield NodeLine(node=msgspec.structs.replace(node, address="", until=None))


def enter(store: Store, asked: ImportStore, now: float = FOREVER) -> Imported:
    """Import the whole page, or nothing if a line cannot be read. Raises StoreUnavailable.

    Nodes are not imported: those of a stack are those that join it.
    """
    entries: list[Entry] = []
    for index, line in enumerate(asked.lines):
        try:
            entries.append(entry_of(line))
        except ValueError as error:
            return Imported(entered=0, known=0, wrong=(index, str(error)))
    seen = [one.seen for one in entries if isinstance(one, ObservationLine)]
    entered = _enter_observations(store, seen, asked.newest_at, now)
    entered += _enter_theory(store, [one for one in entries if isinstance(one, OfWorkload)])
    entered += _enter_bandwidths(store, [one.row for one in entries if isinstance(one, BandwidthLine)])
    entered += store.log([one.execution for one in entries if isinstance(one, ExecutionLine)])
    return Imported(entered=entered, known=len(entries) - entered)


def _enter_observations(
    store: Store, seen: Sequence[ThroughputObserved], newest_at: float | None, now: float
) -> int:
    """Enter observations, which count as so much earlier that the newest of the file is not after `now`."""
    new = store.unknown([one for one in seen if usable(one) and gangs.paced(one.gang)])
    newest = max([one.at for one in seen], default=0.0) if newest_at is None else newest_at
    store.add(new, now, max(newest - now, 0.0))
    return len(new)


def _enter_bandwidths(store: Store, rows: Sequence[BandwidthRow]) -> int:
    known = store.bandwidths()
    new = {row.gpu_type: _bandwidth(row) for row in rows if row.gpu_type not in known}
    if new:
        store.calibrate(new)
    return len(new)


def _enter_theory(store: Store, lines: Sequence[OfWorkload]) -> int:
    store.theory(dict.fromkeys(line.fingerprint for line in lines))  # read at once
    with store.together():
        return sum(_enter(store, line) for line in lines)


def _enter(store: Store, line: OfWorkload) -> bool:
    """Enter a line; returns whether the store did not have it."""
    known = store.theory([line.fingerprint]).get(line.fingerprint)
    match line:
        case TheoryLine(fingerprint=fingerprint, gpu_type=gpu_type, modules=modules):
            if known is None or gpu_type not in known.modules:
                store.keep(workload_of(fingerprint), {gpu_type: modules})
                return True
        case LoadingLine(fingerprint=fingerprint, gpu_type=gpu_type):
            if known is not None and gpu_type not in known.loading:
                store.refine(fingerprint, gpu_type, _loading(line))
                return True
        case CorrectionLine(fingerprint=fingerprint, gpu_types=gpu_types):
            if known is not None and gpu_types not in known.corrections:
                one = Correction(factor=line.factor, observations=line.observations)
                store.correct(fingerprint, gpu_types, one)
                return True
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
