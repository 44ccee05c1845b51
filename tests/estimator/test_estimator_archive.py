"""Out of one store and into another."""

from pathlib import Path

import pytest
from estimator_builders import mode, modules, observed, workload
from test_estimator_store import HALF_LIFE_S, keys

from schemas.accuracy import Execution
from schemas.archive import BandwidthLine, Header, encoded, entry_of, header_of, workload_of
from schemas.calibration import BandwidthRow
from schemas.ids import Fingerprint, GpuType, JobId, PlacementId
from schemas.jobs import Workload
from schemas.plans import Layer
from schemas.questions import ExportStore, Imported, ImportStore
from services.estimator.archive import enter, page
from services.estimator.duckdb_store import DuckDbStore
from services.estimator.store import Bandwidth, Loading, Store

A = GpuType("A")


def filled(path: str = ":memory:") -> DuckDbStore:
    store = DuckDbStore(path, HALF_LIFE_S)
    store.add([observed(throughput=rate, at=at) for at, rate in enumerate((40.0, 60.0, 80.0))])
    store.keep(workload(), {A: modules()})
    store.refine(
        workload().fingerprint, A, Loading(data=(mode(0.2),), wait_factor=1.5, wait_s=0.0, iterations=64)
    )
    store.calibrate({A: Bandwidth(link=1e9, network=None, at=3.0, measurements=4, error=0.1)})
    store.log([execution()])
    return store


def execution(estimated: float = 9.0) -> Execution:
    return Execution(
        placement_id=PlacementId("p1"),
        job_id=JobId("j1"),
        fingerprint=workload().fingerprint,
        model="resnet18",
        gpu_type="A",
        gpus=1,
        nodes=1,
        layer=Layer.TYPE,
        estimated=estimated,
        measured=10.0,
        at=5.0,
        seconds=100.0,
        number=1,
        unstable=True,
    )


def lines(store: Store, limit: int = 2) -> tuple[bytes, ...]:
    found: tuple[bytes, ...] = ()
    after: int | None = 0
    while after is not None:
        one = page(store, ExportStore(after=after, limit=limit))
        found, after = found + one.lines, one.next
    return found


def test_everything_comes_over_and_a_second_time_nothing() -> None:
    exported = lines(filled())
    other = DuckDbStore(":memory:", HALF_LIFE_S)
    assert enter(other, ImportStore(lines=exported)) == Imported(entered=7, known=0)
    assert lines(other) == exported
    assert other.find(keys(("a0", False, 1))).count.tolist() == [3]
    assert enter(other, ImportStore(lines=exported)) == Imported(entered=0, known=7)
    assert other.find(keys(("a0", False, 1))).count.tolist() == [3]


def test_what_a_store_has_stays_as_it_is() -> None:
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


NEGATIVE = BandwidthLine(
    row=BandwidthRow(gpu_type=A, link=-1.0, network=None, at=0.0, measurements=1, error=0.0)
)


@pytest.mark.parametrize("line", [b"", b"{", b'{"kind":"observation"}', encoded(NEGATIVE)])
def test_a_line_that_cannot_be_meant_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        entry_of(line)


@pytest.mark.parametrize("line", [b"", b"PAR1", b'{"kind":"hopyard-store","version":99}'])
def test_a_file_of_something_else_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match="export"):
        header_of(line)
    assert header_of(b'{"kind":"hopyard-store","version":1}') == Header(version=1)


def test_a_fingerprint_names_its_workload() -> None:
    odd = Workload(model="a|b%", dataset="d", batch_size=8, optimizer="adam", code_version="1|2")
    assert workload_of(odd.fingerprint) == odd
    with pytest.raises(ValueError, match="no fingerprint"):
        workload_of(Fingerprint("a|b"))
