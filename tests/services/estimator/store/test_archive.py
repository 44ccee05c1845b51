"""Out of one store and into another."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import duckdb
import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from schemas.archive import (
    BandwidthLine,
    CorrectionLine,
    ExecutionLine,
    Header,
    Line,
    LoadingLine,
    ObservationLine,
    TheoryLine,
    encoded,
    entry_of,
    header_of,
    workload_of,
)
from schemas.calibration import BandwidthRow
from schemas.ids import Fingerprint, GpuType, PlacementId
from schemas.jobs import Workload
from schemas.placement import Proportional
from schemas.questions import ExportStore, Imported, ImportStore
from services.estimator.store import archive, memory_store
from services.estimator.store.archive import enter, page
from services.estimator.store.contract import Bandwidth, Correction, Loading, Store, size_of
from services.estimator.store.duckdb_store import DuckDbStore
from services.estimator.store.memory_store import MemoryStore
from tests.paths import data
from tests.services.estimator.estimator_builders import execution, mode, modules, observed, workload
from tests.services.estimator.store.test_store import HALF_LIFE_S, REFINED, keys

A = GpuType("A")
L = TypeVar("L", bound=Line)
EXPORT_OF_0_1 = data("versions/0.1.0/store.ndjson")


def filled(path: str = ":memory:") -> DuckDbStore:
    store = DuckDbStore(path, HALF_LIFE_S)
    store.add([observed(throughput=rate, at=at) for at, rate in enumerate((40.0, 60.0, 80.0))])
    store.keep(workload(), {A: modules()})
    store.refine(
        workload().fingerprint, A, Loading(data=(mode(0.2),), wait_factor=1.5, wait_s=0.0, iterations=64)
    )
    store.correct(workload().fingerprint, "A+B", Correction(factor=0.9, observations=2))
    store.calibrate({A: Bandwidth(link=1e9, network=None, at=3.0, measurements=4, error=0.1)})
    store.log([execution()])
    return store


def entries(exported: tuple[bytes, ...], kind: type[L]) -> list[L]:
    return [one for one in map(entry_of, exported) if isinstance(one, kind)]


def lines(store: Store, limit: int = 2) -> tuple[bytes, ...]:
    return tuple(line for one in pages(store, limit) for line in one)


def pages(store: Store, limit: int) -> list[tuple[bytes, ...]]:
    found, after = [], 0
    while True:
        one = page(store, ExportStore(after=after, limit=limit))
        found.append(one.lines)
        if one.next is None:
            return found
        after = one.next


def test_no_page_has_more_lines_than_asked_for_whatever_they_are_of() -> None:
    for store in (filled(), MemoryStore(HALF_LIFE_S)):
        store.log([replace(execution(), placement_id=PlacementId(f"pl-{n}")) for n in range(7)])
        assert {len(one) for one in pages(store, 3)[:-1]} == {3}
        names = [entry.execution.placement_id for entry in entries(lines(store, 3), ExecutionLine)]
        assert names == [seen.placement_id for seen in store.logged(0, 100)]


def test_no_page_has_more_bytes_than_a_message_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    exported = lines(filled(), 100)
    monkeypatch.setattr(archive, "PAGE_BYTES", max(map(len, exported)))
    paged = pages(filled(), 100)
    assert max(sum(map(len, one)) for one in paged) < 2 * archive.PAGE_BYTES
    assert lines(filled(), 100) == exported


def test_an_export_skips_nothing_while_the_newest_observations_displace_the_oldest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory_store, "SEEN_KEPT", 10)
    store = MemoryStore(HALF_LIFE_S)
    store.add([observed(at=float(n)) for n in range(12)])
    first = page(store, ExportStore(after=0, limit=5))
    store.add([observed(at=float(n)) for n in range(12, 15)])
    assert first.next is not None
    rest = page(store, ExportStore(after=first.next, limit=9))
    exported = entries((*first.lines, *rest.lines), ObservationLine)
    assert [one.seen.at for one in exported] == [float(n) for n in range(2, 15)]


def test_theory_that_comes_between_two_pages_displaces_no_other() -> None:
    store = MemoryStore(HALF_LIFE_S)
    for model in ("m3", "m5"):
        store.keep(workload(model), {A: modules()})
    first = page(store, ExportStore(after=0, limit=1))
    store.keep(workload("m1"), {A: modules()})
    assert first.next is not None
    rest = page(store, ExportStore(after=first.next, limit=9))
    names = [one.fingerprint for one in entries((*first.lines, *rest.lines), TheoryLine)]
    assert {workload(model).fingerprint for model in ("m3", "m5")} <= set(names)


def test_an_import_takes_everything_once() -> None:
    exported = lines(filled())
    other = DuckDbStore(":memory:", HALF_LIFE_S)
    assert enter(other, ImportStore(lines=exported)) == Imported(entered=8, known=0)
    assert lines(other) == exported
    assert other.find(keys(("a0", False, 1))).count.tolist() == [3]
    assert enter(other, ImportStore(lines=exported)) == Imported(entered=0, known=8)
    assert other.find(keys(("a0", False, 1))).count.tolist() == [3]


def weighed(rates_at: dict[float, float], now: float, newest_at: float | None = None) -> tuple[Store, float]:
    """A store that imported some observations, a page each, and its mean."""
    store = MemoryStore(HALF_LIFE_S)
    for at, rate in rates_at.items():
        line = encoded(ObservationLine(seen=observed(throughput=rate, at=at)))
        assert enter(store, ImportStore(lines=(line,), newest_at=newest_at), now).entered == 1
    return store, store.find(keys(("a0", False, 1))).mean.tolist()[0]


def test_an_import_from_a_cluster_whose_clock_is_ahead_keeps_its_own_ages() -> None:
    """40 was seen one half-life before 70, so it counts half."""
    old = {1e9: 40.0, 1e9 + HALF_LIFE_S: 70.0}
    store, mean = weighed(old, now=5.0, newest_at=1e9 + HALF_LIFE_S)
    assert mean == pytest.approx(60.0)
    assert [one.at for one in store.observations(0, 9)] == list(old)


def test_own_observations_count_after_an_import_from_a_cluster_whose_clock_is_ahead() -> None:
    store, _ = weighed({1e9: 40.0}, now=5.0)
    for at in (5.0 + HALF_LIFE_S, 5.0 + 20 * HALF_LIFE_S):
        store.add([observed(throughput=70.0, at=at)], now=at)
    assert store.find(keys(("a0", False, 1))).mean == pytest.approx([70.0], rel=1e-3)


class Counting(DuckDbStore):
    """Counts its transactions."""

    transactions = 0

    @contextmanager
    def _file(self, verb: str) -> Iterator[duckdb.DuckDBPyConnection]:
        self.transactions += verb == "written"
        with super()._file(verb) as file:
            yield file


def test_an_import_takes_as_few_transactions_whatever_the_number_of_its_lines() -> None:
    store, models = filled(), [f"m{n}" for n in range(20)]
    for model in models:
        store.keep(workload(model), {A: modules()})
        store.refine(workload(model).fingerprint, A, REFINED)
    store.log([replace(execution(), placement_id=PlacementId(model)) for model in models])
    other = Counting(":memory:", HALF_LIFE_S)
    enter(other, ImportStore(lines=lines(store, 1_000)))
    assert other.transactions == 4
    assert lines(other) == lines(store)


def test_what_a_deleted_file_had_can_be_exported_and_imported(tmp_path: Path) -> None:
    path = tmp_path / "store.duckdb"
    filled(str(path)).close()
    store = DuckDbStore(str(path), HALF_LIFE_S)
    path.unlink()
    store.add([observed(throughput=70.0, at=9.0)])
    exported = lines(store)
    store.close()
    empty = DuckDbStore(str(path), HALF_LIFE_S)
    assert enter(empty, ImportStore(lines=exported)).entered == len(exported)
    assert lines(empty) == exported


def test_an_import_takes_no_gang_of_unlike_shares_for_one_in_lockstep() -> None:
    alike = observed(configuration={"a0": 1, "a1": 1})
    unlike = replace(alike, gang=replace(alike.gang, sync=Proportional(samples=(1, 9))))
    store = MemoryStore(HALF_LIFE_S)
    line = encoded(ObservationLine(seen=unlike))
    assert enter(store, ImportStore(lines=(line,))) == Imported(entered=0, known=1)
    assert store.find(keys(("a0", True, int(size_of(np.array(2), np.array(2)))))).count.tolist() == [0]


def test_an_import_does_not_overwrite_profiles() -> None:
    other = DuckDbStore(":memory:", HALF_LIFE_S)
    other.keep(workload(), {A: modules(forward_s=9.0)})
    enter(other, ImportStore(lines=lines(filled())))
    assert other.theory([workload().fingerprint])[workload().fingerprint].modules[A].forward_s == 9.0


def test_a_page_with_a_wrong_line_is_refused_whole() -> None:
    exported = lines(filled())
    other = DuckDbStore(":memory:", HALF_LIFE_S)
    answer = enter(other, ImportStore(lines=(*exported[:2], b'{"kind":"recipe"}')))
    assert answer.wrong is not None
    assert answer.wrong[0] == 2
    assert lines(other) == ()


def test_a_file_keeps_all_of_it(tmp_path: Path) -> None:
    path = str(tmp_path / "store.duckdb")
    store = filled(path)
    exported = lines(store)
    store.close()
    again = DuckDbStore(path, HALF_LIFE_S)
    assert lines(again) == exported
    assert again.executions() == [execution()]
    again.close()


ENTRIES: list[Line] = [
    ObservationLine(seen=observed()),
    TheoryLine(fingerprint=workload().fingerprint, gpu_type=A, modules=modules()),
    LoadingLine(
        fingerprint=workload().fingerprint,
        gpu_type=A,
        data=(mode(0.2),),
        wait_factor=1.0,
        wait_s=0.0,
        iterations=8,
    ),
    CorrectionLine(fingerprint=workload().fingerprint, gpu_types="A+B", factor=0.9, observations=2),
    BandwidthLine(row=BandwidthRow(gpu_type=A, link=1e9, network=None, at=0.0, measurements=1, error=0.0)),
    ExecutionLine(execution=execution()),
]
GOOD = tuple(map(encoded, ENTRIES))
NO_TIME = modules(forward_s=0.0, backward_s=0.0, update_s=0.0)
WRONG: dict[str, object] = {
    "seen.seconds": 0.0,
    "seen.gpus_on_node": 2,
    "seen.node_id": "a1",
    "seen.wait_s": [0.1],
    "fingerprint": "m|d|99999999999|sgd|",
    "fingerprint ": "m|d|0|sgd|",
    "fingerprint  ": "m|d|007|sgd|",
    "modules": msgspec.to_builtins(NO_TIME),
    "modules.data": msgspec.to_builtins([mode(0.1, probability=0.0)]),
    "wait_factor": -50.0,
    "wait_s": -5.0,
    "iterations": -1,
    "factor": 0.0,
    "observations": 9_999_999_999,
    "row.link": -1.0,
    "row.error": -1.0,
    "execution.number": 3_000_000_000,
    "execution.gpus": 0,
    "execution.measured": 1e-300,
    "execution.seconds": 0.0,
}
"""a figure that cannot be, by the place where it stands in one of the entries"""


def with_figure(place: str, value: object) -> bytes:
    """The first entry that has the place, with another value there."""
    *outer, name = place.strip().split(".")
    for line in GOOD:
        entry = msgspec.json.decode(line)
        inner = entry
        for one in outer:
            inner = inner.get(one, {})
        if name in inner:
            inner[name] = value
            return msgspec.json.encode(entry)
    raise AssertionError(place)


@pytest.mark.parametrize("place", WRONG)
def test_a_page_with_a_figure_that_cannot_be_is_refused_whole(place: str) -> None:
    store = DuckDbStore(":memory:", HALF_LIFE_S)
    answer = enter(store, ImportStore(lines=(*GOOD, with_figure(place, WRONG[place]))))
    assert (answer.entered, answer.wrong and answer.wrong[0]) == (0, len(GOOD))
    assert lines(store) == ()
    assert enter(store, ImportStore(lines=GOOD)).entered == len(GOOD)


def test_loading_without_time_modules_is_not_counted_as_entered() -> None:
    loading = [line for line in GOOD if b'"kind":"loading"' in line]
    for store in (DuckDbStore(":memory:", HALF_LIFE_S), MemoryStore(HALF_LIFE_S)):
        assert enter(store, ImportStore(lines=tuple(loading))) == Imported(entered=0, known=1)
        assert enter(store, ImportStore(lines=GOOD)).entered == len(GOOD)


ORDER = b'{"kind":"observation","seen":{"fact":"worker.start-ordered","gang":[1]}}'


@pytest.mark.parametrize("line", [b"", b"{", b'{"kind":"observation"}', ORDER, b"[" * 100_000])
def test_an_invalid_line_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        entry_of(line)


@pytest.mark.parametrize("line", [b"", b"PAR1", b'{"kind":"hopyard-store","version":99}'])
def test_a_file_of_something_else_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match="export"):
        header_of(line)
    assert header_of(b'{"kind":"hopyard-store","version":2}') == Header(version=2)


def test_a_fingerprint_names_its_workload() -> None:
    odd = Workload(model="a|b%", dataset="d", batch_size=8, optimizer="adam", code_version="1|2")
    assert workload_of(odd.fingerprint) == odd
    with pytest.raises(ValueError, match="is not a fingerprint"):
        workload_of(Fingerprint("a|b"))


def test_an_export_of_0_1_fills_a_store_as_it_did(tmp_path: Path) -> None:
    header, *old = EXPORT_OF_0_1.read_bytes().splitlines()
    assert header_of(header).version == 1
    store = DuckDbStore(str(tmp_path / "store.duckdb"), HALF_LIFE_S)
    assert enter(store, ImportStore(lines=tuple(old))) == Imported(entered=len(old), known=0)
    seen = [one.seen for one in map(entry_of, lines(store)) if isinstance(one, ObservationLine)]
    exported = [json.loads(line)["seen"] for line in old if b'"kind":"observation"' in line]
    assert sorted((one.placement_id, one.node_id, one.at) for one in seen) == sorted(
        (one["placement_id"], one["node_id"], one["at"]) for one in exported
    )
    places = {(one["placement_id"]): one["configuration"] for one in exported}
    assert all(one.gang.configuration == places[one.placement_id] for one in seen)
    store.close()
