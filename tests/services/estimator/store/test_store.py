"""The contract of the store, over both implementations; and what a DuckDB file can do wrong."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random

import duckdb
import msgspec
import numpy as np
import pytest

from schemas.ids import GpuType, PlacementId
from schemas.questions import ExportStore
from schemas.samples import ThroughputObserved
from services.estimator.store.archive import page
from services.estimator.store.contract import (
    RUNNING,
    Bandwidth,
    Correction,
    Keys,
    Loading,
    Shape,
    Store,
    StoreUnavailable,
    size_of,
)
from services.estimator.store.duckdb_store import PRUNED_SHARE, DamagedStore, DuckDbStore, remedy_of
from services.estimator.store.memory_store import MemoryStore
from tests.services.estimator.estimator_builders import execution, mode, modules, observed, workload

HALF_LIFE_S = 1000.0
REFINED = Loading(data=(mode(0.1),), wait_factor=1.0, wait_s=0.0, iterations=64)
A, B = GpuType("A"), GpuType("B")


@pytest.fixture(params=["memory", "duckdb", "duckdb-file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    path = str(tmp_path / "store.duckdb") if request.param == "duckdb-file" else ":memory:"
    opened: Store = MemoryStore(HALF_LIFE_S) if request.param == "memory" else DuckDbStore(path, HALF_LIFE_S)
    yield opened
    opened.close()


def keys(*rows: tuple[str, bool, int], layer: str = "entity", model: str = "resnet18") -> Keys:
    return Keys(
        layer=layer,
        fingerprints=[workload(model).fingerprint],
        places=[place if layer == "type" else f"{place}/A" for place, _, _ in rows],
        workload=np.zeros(len(rows), dtype=np.int64),
        place=np.arange(len(rows)),
        distributed=np.array([distributed for _, distributed, _ in rows], dtype=np.bool_),
        size=np.array([size for _, _, size in rows], dtype=np.int64),
    )


def shown(store: Store) -> dict[Shape, float]:
    found = store.shape_means(workload().fingerprint)
    return dict(zip(found.shapes, found.mean.tolist(), strict=True))


def test_keys_without_observations_are_not_found(store: Store) -> None:
    found = store.find(keys(("a0", False, 1)))
    assert (found.count.tolist(), found.seconds.tolist()) == ([0], [0.0])
    assert np.isnan(found.mean).all()
    assert np.isnan(found.variance).all()


def test_every_observation_is_an_entity_record_and_a_type_record(store: Store) -> None:
    store.add([observed("a0", throughput=40.0), observed("a1", throughput=60.0)])
    assert store.find(keys(("a0", False, 1), ("a1", False, 1))).mean.tolist() == [40.0, 60.0]
    by_type = store.find(keys(("A", False, 1), layer="type"))
    assert (by_type.mean.tolist(), by_type.count.tolist()) == ([50.0], [2])
    assert by_type.variance == pytest.approx([100.0])


def test_answers_come_in_the_order_of_the_keys(store: Store) -> None:
    store.add([observed("a0", throughput=1.0), observed("a1", throughput=2.0)])
    asked = keys(("a1", False, 1), ("a9", False, 1), ("a0", False, 1), ("a1", False, 1))
    assert store.find(asked).count.tolist() == [1, 0, 1, 1]


def test_aggregated_and_distributed_tables_are_apart(store: Store) -> None:
    store.add([observed("a0", configuration={"a0": 2}), observed("a0", configuration={"a0": 5, "a1": 3})])
    pair = int(size_of(np.array(2), np.array(8)))
    found = store.find(keys(("a0", False, 2), ("a0", True, pair), ("a0", False, 5), ("a0", False, 8)))
    assert found.count.tolist() == [1, 1, 0, 0]


def test_a_distributed_row_is_of_as_many_nodes_and_gpus(store: Store) -> None:
    gangs = [{"a0": gpus, "a1": gpus} for gpus in (1, 8)]
    store.add([observed(configuration=one, throughput=1.0 + one["a0"]) for one in gangs])
    rows = [("a0", True, int(size_of(np.array(nodes), np.array(gpus)))) for nodes, gpus in ((2, 2), (2, 16))]
    assert store.find(keys(*rows)).mean.tolist() == [2.0, 9.0]
    assert shown(store) == {Shape(A, 2, 2): 2.0, Shape(A, 2, 16): 9.0}


def test_the_mean_of_a_type_is_kept_by_shape(store: Store) -> None:
    assert shown(store) == {}
    store.add([observed("b0", "B"), observed(throughput=40.0), observed("a1", throughput=60.0)])
    assert shown(store) == {Shape(A, 1, 1): 50.0, Shape(B, 1, 1): 50.0}
    assert list(shown(store)) == sorted(shown(store))


def test_the_workloads_that_ran_last_come_first(store: Store) -> None:
    for model, at in (("m1", 10.0), ("m3", 30.0), ("m2", 20.0), ("m3", 5.0)):
        store.add([observed(model=model, at=at)])
    assert store.latest(2) == [workload(model).fingerprint for model in ("m3", "m2")]


def test_a_revision_is_another_when_something_is(store: Store) -> None:
    name, other = workload().fingerprint, workload("vgg").fingerprint
    store.keep(workload(), {A: modules()})
    paths = Bandwidth(link=1.0, network=1.0, at=0.0, measurements=1, error=0.0)
    steps: list[Callable[[], None]] = [
        partial(store.add, [observed()]),
        partial(store.refine, name, A, REFINED),
        partial(store.keep, workload(), {B: modules()}),
        partial(store.calibrate, {A: paths}),
    ]
    for step in steps:
        before, elsewhere = store.revision(name, (A, B)), store.revision(other, (A, B)).evidence
        changes, own = store.changes(), store.changes(name)
        step()
        assert store.revision(name, (A, B)) != before
        assert store.changes() != changes
        assert store.changes(name) != own
        assert store.revision(other, (A, B)).evidence == elsewhere


def test_a_revision_on_some_types_is_another_when_something_is_on_one_of_them(store: Store) -> None:
    name = workload().fingerprint
    store.keep(workload(), {A: modules(), B: modules()})
    steps: list[Callable[[], None]] = [
        partial(store.add, [observed()]),
        partial(store.refine, name, A, REFINED),
        partial(store.keep, workload(), {A: modules(forward_s=2.0), B: modules()}),
    ]
    for step in steps:
        before = {types: store.revision(name, types) for types in ((A,), (B,), (A, B))}
        step()
        changed = [types for types, one in before.items() if store.revision(name, types) != one]
        assert changed == [(A,), (A, B)]


def test_a_revision_is_unchanged_by_a_profile_that_was_known(store: Store) -> None:
    store.keep(workload(), {A: modules(), B: modules()})
    before = store.revision(workload().fingerprint, (A, B))
    store.keep(workload(), {A: modules()})
    assert store.revision(workload().fingerprint, (A, B)) == before


def test_workloads_are_apart(store: Store) -> None:
    store.add([observed(model="vgg")])
    assert store.find(keys(("a0", False, 1))).count.tolist() == [0]
    assert store.find(keys(("a0", False, 1), model="vgg")).count.tolist() == [1]


def test_batches_add_up_in_any_order(store: Store) -> None:
    store.add([observed(throughput=60.0, at=HALF_LIFE_S)])
    store.add([observed(throughput=30.0, at=0.0), observed(throughput=30.0, at=0.0)])
    found = store.find(keys(("a0", False, 1)))
    assert found.mean == pytest.approx([(60 + 2 * 0.5 * 30) / 2])
    assert (found.count.tolist(), found.seconds.tolist()) == ([3], [60.0])


def test_times_as_large_as_today_do_not_overflow(store: Store) -> None:
    store.add([observed(at=1.8e9), observed(at=0.0)])
    assert np.isfinite(store.find(keys(("a0", False, 1))).mean).all()


def test_an_empty_batch_changes_nothing(store: Store) -> None:
    store.add([])
    assert store.find(keys(("a0", False, 1))).count.tolist() == [0]


def test_time_modules_are_kept_by_type(store: Store) -> None:
    store.keep(workload(), {A: modules()})
    store.keep(workload(), {B: modules(forward_s=9.0)})
    store.keep(workload(), {A: modules(forward_s=7.0)})
    known = store.theory([workload().fingerprint, workload("vgg").fingerprint])
    assert list(known) == [workload().fingerprint]
    theory = known[workload().fingerprint]
    assert theory.batch_size == 100
    assert {gpu_type: one.forward_s for gpu_type, one in theory.modules.items()} == {A: 7.0, B: 9.0}


def test_the_loading_of_a_workload_that_was_not_profiled_is_not_refined(store: Store) -> None:
    store.refine(workload().fingerprint, A, REFINED)
    store.keep(workload(), {A: modules()})
    if isinstance(store, DuckDbStore):
        store._forget([workload().fingerprint])  # the file is read next
    assert store.theory([workload().fingerprint])[workload().fingerprint].loading == {}


def test_refined_loading_is_kept_beside_the_profile(store: Store) -> None:
    store.keep(workload(), {A: modules()})
    loading = Loading(data=(mode(0.2),), wait_factor=1.0, wait_s=0.5, iterations=64)
    store.refine(workload().fingerprint, A, loading)
    store.keep(workload(), {B: modules()})
    theory = store.theory([workload().fingerprint])[workload().fingerprint]
    assert (theory.modules[A], theory.loading) == (modules(), {A: loading})


def test_corrections_are_kept_by_workload_and_types(store: Store) -> None:
    fingerprint, one = workload().fingerprint, Correction(factor=0.9, observations=2)
    store.correct(fingerprint, "A+B", one)
    assert store.theory([fingerprint]) == {}
    store.keep(workload(), {A: modules()})
    store.correct(fingerprint, "A+B", one)
    store.correct(fingerprint, "A+C", one)
    store.correct(fingerprint, "A+C", Correction(factor=1.1, observations=3))
    store.keep(workload(), {B: modules()})
    known = store.theory([fingerprint])[fingerprint].corrections
    assert known == {"A+B": one, "A+C": Correction(factor=1.1, observations=3)}


def test_of_two_executions_with_one_placement_the_first_is_logged(store: Store) -> None:
    assert store.log([execution(9.0), execution(8.0)]) == 1
    assert store.log([execution(7.0)]) == 0
    assert store.executions() == [execution(9.0)]


def test_the_newest_observations_with_loading_times_are_there_for_a_fit(store: Store) -> None:
    timed = [
        msgspec.structs.replace(observed(at=float(at)), data_s=(0.1,), wait_s=(0.0,))
        for at in range(RUNNING + 5)
    ]
    store.add([*timed, observed(at=1e6)])
    assert list(store.running(workload().fingerprint, A).latest) == timed[5:]
    assert store.running(workload().fingerprint, B) == ((), ())


def test_what_a_fit_gets_is_what_came_last_whatever_its_time(store: Store) -> None:
    timed = [msgspec.structs.replace(observed(at=at), data_s=(0.1,)) for at in (1e9, *range(RUNNING))]
    store.add(timed, now=100.0)
    assert list(store.running(workload().fingerprint, A).latest) == timed[1:]


def test_the_gangs_of_a_fit_are_the_last_however_many_jobs_ran_on_one_gpu_since(store: Store) -> None:
    def timed(at: int, gpus: dict[str, int], wait_s: tuple[float, ...] = (0.3,)) -> ThroughputObserved:
        seen = observed(at=float(at), configuration=gpus)
        return msgspec.structs.replace(seen, data_s=(0.1,), wait_s=wait_s)

    gangs = [timed(at, [{"a0": 2}, {"a0": 1, "a1": 1}][at % 2]) for at in range(RUNNING + 5)]
    alone = [timed(at, {"a0": 1}) for at in range(200, 200 + RUNNING)]
    store.add([*gangs[:10], alone[0], timed(100, {"a0": 2}, ()), *gangs[10:], *alone[1:]])
    found = store.running(workload().fingerprint, A)
    assert (list(found.gangs), list(found.latest)) == (gangs[5:], [gangs[-1], *alone[1:]])


def test_a_workload_observed_later_than_now_is_not_the_newest_for_ever(store: Store) -> None:
    store.add([observed(model="m1", at=1e9)], now=10.0)
    store.add([observed(model="m2", at=20.0)], now=20.0)
    assert store.latest(1) == [workload("m2").fingerprint]


def test_what_is_written_together_is_known_at_once(store: Store) -> None:
    with store.together():
        store.keep(workload(), {A: modules()})
        store.refine(workload().fingerprint, A, REFINED)
        assert store.theory([workload().fingerprint])[workload().fingerprint].loading == {A: REFINED}
    assert store.theory([workload().fingerprint])[workload().fingerprint].loading == {A: REFINED}
    store.keep(workload(), {B: modules()})
    assert set(store.theory([workload().fingerprint])[workload().fingerprint].modules) == {A, B}


def test_bandwidths_are_kept_by_type(store: Store) -> None:
    first, second = (
        Bandwidth(link=link, network=None, at=0.0, measurements=1, error=0.0) for link in (1e9, 2e9)
    )
    store.calibrate({A: first, B: first})
    store.calibrate({A: second})
    assert store.bandwidths() == {A: second, B: first}


# ---- the file


def test_of_what_is_written_together_a_file_has_all_or_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "store.duckdb")
    store = DuckDbStore(path, HALF_LIFE_S)
    with suppress(ZeroDivisionError), store.together():
        store.keep(workload(), {A: modules()})
        _ = 1 / 0
    assert store.theory([workload().fingerprint]) == {}
    with store.together():
        for model in ("m1", "m2"):
            store.keep(workload(model), {A: modules()})
    store.close()
    again = DuckDbStore(path, HALF_LIFE_S)
    assert again.workloads() == [workload(model).fingerprint for model in ("m1", "m2")]
    again.close()


def test_a_store_reads_back_its_file(tmp_path: Path) -> None:
    path = str(tmp_path / "store.duckdb")
    first = DuckDbStore(path, HALF_LIFE_S)
    first.add([observed(throughput=40.0), observed(throughput=60.0)])
    first.keep(workload(), {A: modules()})
    first.close()
    second = DuckDbStore(path, HALF_LIFE_S)
    assert shown(second) == {Shape(A, 1, 1): 50.0}
    assert second.latest(2) == [workload().fingerprint]
    second.add([observed(throughput=80.0)])
    assert second.find(keys(("a0", False, 1))).mean == pytest.approx([60.0])
    assert second.theory([workload().fingerprint])[workload().fingerprint].modules == {A: modules()}
    second.close()


def test_every_observation_is_in_the_file_as_it_came(tmp_path: Path) -> None:
    path = str(tmp_path / "store.duckdb")
    store = DuckDbStore(path, HALF_LIFE_S)
    store.add([observed(throughput=40.0)])
    store.add([observed(throughput=40.0), observed(throughput=60.0)])
    store.close()
    with duckdb.connect(path, read_only=True) as file:
        rows = file.execute(
            "SELECT throughput, configuration FROM observations ORDER BY throughput"
        ).fetchall()
    assert [throughput for throughput, _ in rows] == [40.0, 40.0, 60.0]
    assert "a0" in rows[0][1]


def history(seed: int, half_lives: float) -> list[ThroughputObserved]:
    """Of two servers and gangs over both, with a pause of weeks of which the server `a1` knows nothing."""
    draw = Random(seed)
    found = []
    for number in range(1200):
        name, gang = draw.choice([("a0", {"a0": 1}), ("a0", {"a0": 2}), ("a0", {"a0": 1, "a1": 1})])
        if number < 200:
            name, gang = "a1", {"a1": 1}
        seen = observed(
            name,
            configuration=gang,
            at=half_lives * HALF_LIFE_S * number / 1200,
            seconds=draw.uniform(20.0, 400.0),
            throughput=draw.uniform(40.0, 60.0),
            place=f"p{number}",
        )
        timed = draw.random() < 0.5
        found.append(msgspec.structs.replace(seen, data_s=(0.1,), wait_s=(0.2,)) if timed else seen)
    return found


PAIR = int(size_of(np.array([2]), np.array([2]))[0])
PLACES = ("a0", False, 1), ("a0", False, 2), ("a0", True, PAIR), ("a1", False, 1)


@pytest.mark.parametrize(("half_lives", "fewest", "most"), [(1.0, 1190, 1200), (40.0, 400, 600)])
def test_a_large_file_keeps_the_observations_that_weigh_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, half_lives: float, fewest: int, most: int
) -> None:
    path, all_of_them = str(tmp_path / "store.duckdb"), history(1, half_lives)
    first, whole = DuckDbStore(path, HALF_LIFE_S), MemoryStore(HALF_LIFE_S)
    for store in (first, whole):
        store.add(all_of_them)
    running = first.running(all_of_them[0].fingerprint, A)
    first.close()
    monkeypatch.setattr("services.estimator.store.duckdb_store.PRUNED_FROM", 1000)
    opened = []
    for _ in range(2):
        store = DuckDbStore(path, HALF_LIFE_S)
        opened.append(kept := store.observations(0, 9999))
        assert store.running(all_of_them[0].fingerprint, A) == running
        for layer in ("entity", "type"):  # what estimates are made of is as in a store made of all of them
            of_all, found = (one.find(keys(*PLACES, layer=layer)) for one in (whole, store))
            assert found.count.tolist() == of_all.count.tolist()
            for name in ("weight", "mean", "variance", "seconds"):
                assert getattr(found, name) == pytest.approx(getattr(of_all, name), nan_ok=True)
        store.close()
        monkeypatch.setattr("services.estimator.store.duckdb_store.PRUNED_FROM", 1)
    assert opened[0] == opened[1]
    assert fewest <= len(kept) <= most
    copy = MemoryStore(HALF_LIFE_S)
    copy.add(kept)
    of_all, of_kept = (one.find(keys(*PLACES)) for one in (whole, copy))
    assert (of_kept.weight >= (1 - PRUNED_SHARE) * of_all.weight).all()
    assert of_kept.mean == pytest.approx(of_all.mean, abs=PRUNED_SHARE * (60.0 - 40.0))
    assert (of_kept.count >= np.minimum(of_all.count, RUNNING)).all()


@pytest.mark.parametrize("reached", [0, 100, 500, 1100, 1200])
def test_an_export_that_goes_on_after_a_restart_skips_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reached: int
) -> None:
    """The start in between deletes observations before the place that it has reached."""
    path = str(tmp_path / "store.duckdb")
    store = DuckDbStore(path, HALF_LIFE_S)
    store.add(history(1, 40.0))
    lines = list(page(store, ExportStore(after=0, limit=reached)).lines) if reached else []
    store.close()
    monkeypatch.setattr("services.estimator.store.duckdb_store.PRUNED_FROM", 1000)
    for _ in range(2):
        store = DuckDbStore(path, HALF_LIFE_S)
        rest = page(store, ExportStore(after=reached, limit=9999))
        all_of_it = page(store, ExportStore(after=0, limit=9999))
        store.close()
        assert rest.next is None
        assert set(lines + list(rest.lines)) >= set(all_of_it.lines)
    assert len(all_of_it.lines) < 700


def test_old_observations_stay_where_the_newer_ones_are_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten half-lives later each weighs a thousandth, and all together more than what came since."""
    path = str(tmp_path / "store.duckdb")
    old = [observed(place=f"p{n}", at=float(n), seconds=2000.0, throughput=40.0) for n in range(500)]
    new = [observed(place=f"q{n}", at=10.5 * HALF_LIFE_S, seconds=1.0, throughput=60.0) for n in range(70)]
    store = DuckDbStore(path, HALF_LIFE_S)
    store.add([*old, *new])
    store.close()
    monkeypatch.setattr("services.estimator.store.duckdb_store.PRUNED_FROM", 1)
    store = DuckDbStore(path, HALF_LIFE_S)
    assert store.observations(0, 9999) == [*old, *new]
    store.close()


def test_a_file_opens_where_there_is_no_room_to_delete_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = ("mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", tmp_path)
    if os.geteuid() or subprocess.run(mounts, check=False).returncode:
        pytest.skip("needs to mount a disk")
    path, fill = str(tmp_path / "store.duckdb"), tmp_path / "fill"
    try:
        store = DuckDbStore(path, HALF_LIFE_S)
        store.add(history(1, 40.0))
        store.close()
        with suppress(OSError), fill.open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        monkeypatch.setattr("services.estimator.store.duckdb_store.PRUNED_FROM", 1)
        kept = []
        for _ in range(2):
            store = DuckDbStore(path, HALF_LIFE_S)
            kept.append(len(store.observations(0, 9999)))
            store.close()
            fill.unlink(missing_ok=True)
        assert kept[0] == 1200 > kept[1]
    finally:
        subprocess.run(("umount", tmp_path), check=True)


def test_workloads_leave_memory_and_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.estimator.store.duckdb_store.WORKLOADS_IN_MEMORY", 2)
    store = DuckDbStore(":memory:", HALF_LIFE_S)
    for model in ("m1", "m2", "m3", "m4"):
        store.add([observed(model=model)])
    assert [store.find(keys(("a0", False, 1), model=f"m{k}")).count.tolist() for k in (1, 2, 3, 4)] == [
        [1]
    ] * 4
    store.close()


def test_a_file_in_use_is_refused_with_path_and_remedy(tmp_path: Path) -> None:
    path = str(tmp_path / "store.duckdb")
    hold = f"import duckdb; c = duckdb.connect({path!r}); print('held', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(StoreUnavailable, match=r"store\.duckdb.*stop that one, or set HOPYARD_STORE"):
            DuckDbStore(path, HALF_LIFE_S)
        other.communicate("\n")


@pytest.mark.parametrize("content", [b"", b"not a database" * 1000])
def test_a_damaged_file_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "store.duckdb"
    path.write_bytes(content)
    with pytest.raises(StoreUnavailable, match=r"store\.duckdb.*hopyard store rebuild"):
        DuckDbStore(str(path), HALF_LIFE_S)
    assert path.read_bytes() == content


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.duckdb"
    store = DuckDbStore(str(path), HALF_LIFE_S)
    store.add([observed(f"n{k}") for k in range(2000)])
    store.close()
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 3])
    with pytest.raises(StoreUnavailable, match=r"store\.duckdb"):
        DuckDbStore(str(path), HALF_LIFE_S).find(keys(("n1999", False, 1)))


IN_A_BLOCK = 12_288 + 100
"""a place in the first block, behind three headers"""


@pytest.mark.parametrize(("suffix", "at"), [("", IN_A_BLOCK), (".wal", 5_000)])
def test_flipped_bytes_are_damage(tmp_path: Path, suffix: str, at: int) -> None:
    path = str(tmp_path / "store.duckdb")
    store = DuckDbStore(path, HALF_LIFE_S)
    store.add([observed(f"n{k}") for k in range(2000)])
    if not suffix:
        store.close()  # moves the log into the file
    damaged = tmp_path / "damaged.duckdb"
    for name in ("", ".wal"):
        if Path(path + name).exists():
            shutil.copy(path + name, f"{damaged}{name}")
    content = bytearray(Path(f"{damaged}{suffix}").read_bytes())
    content[at] ^= 0x55
    Path(f"{damaged}{suffix}").write_bytes(content)
    with pytest.raises(DamagedStore, match=r"damaged\.duckdb.*hopyard store rebuild"):
        DuckDbStore(str(damaged), HALF_LIFE_S)
    store.close()


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ('Could not set lock on file "": Conflicting lock is held in python (PID 7)', "stop that one"),
        ('Could not write file "": No space left on device', "Make room"),
        ('Cannot open file "": Read-only file system', "Make its disk writable"),
        ("Corrupt database file: computed checksum 1 does not match 2 in block", "hopyard store rebuild"),
        ('Failure while replaying WAL file "": data may be corrupt', "hopyard store rebuild"),
        ('Could not write file "": File too large', ""),
        ("Could not read from file: Input/output error", ""),
        ("could not allocate block of size 256.0 KiB", ""),
        ("cannot start a transaction within a transaction", ""),
    ],
)
def test_damage_and_locks_are_said_only_where_duckdb_says_so(reason: str, remedy: str) -> None:
    said = remedy_of(reason)
    assert remedy in said
    assert bool(remedy) == bool(said)


def test_a_path_says_nothing_of_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="Create the folder"):
        DuckDbStore(str(tmp_path / "Corrupt" / "Permission denied.duckdb"), HALF_LIFE_S)


def test_after_a_write_that_failed_midway_others_are_written(tmp_path: Path) -> None:
    path = str(tmp_path / "store.duckdb")
    store = DuckDbStore(path, HALF_LIFE_S)
    too_many = msgspec.structs.replace(execution(), placement_id=PlacementId("p2"), number=2**40)
    failing: list[Callable[[], object]] = [
        partial(store.add, [observed(), msgspec.structs.replace(observed(), gpus_on_node=2**40)]),
        partial(store.log, [too_many]),
    ]
    for write in failing:
        with pytest.raises(OverflowError):
            write()
        store.add([observed(at=2.0)])
        store.log([execution()])
    store.close()
    again = DuckDbStore(path, HALF_LIFE_S)
    assert [seen.at for seen in again.observations(0, 10)] == [2.0, 2.0]
    assert again.find(keys(("a0", False, 1))).count.tolist() == [2]
    assert again.executions() == [execution()]
    again.close()


def test_a_row_that_cannot_be_read_is_damage(tmp_path: Path) -> None:
    path = str(tmp_path / "store.duckdb")
    store = DuckDbStore(path, HALF_LIFE_S)
    store.keep(workload(), {A: modules()})
    store.refine(workload().fingerprint, A, msgspec.structs.replace(REFINED, wait_s=float("inf")))
    store.close()
    again = DuckDbStore(path, HALF_LIFE_S)
    with pytest.raises(DamagedStore, match="hopyard store rebuild"):
        again.theory([workload().fingerprint])
    again.close()


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="Create the folder"):
        DuckDbStore(str(tmp_path / "none" / "store.duckdb"), HALF_LIFE_S)


def test_a_database_of_something_else_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "store.duckdb")
    with duckdb.connect(path) as other:
        other.execute("CREATE TABLE recipes (name VARCHAR)")
    with pytest.raises(StoreUnavailable, match="something else"):
        DuckDbStore(path, HALF_LIFE_S)


def test_a_store_of_another_format_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = str(tmp_path / "store.duckdb")
    DuckDbStore(path, HALF_LIFE_S).close()
    with duckdb.connect(path) as other:
        other.execute("UPDATE hopyard_store SET format = 99")
        other.execute("DROP TABLE loading")
        before = other.execute("SHOW TABLES").fetchall()
    with pytest.raises(StoreUnavailable, match="format 99"):
        DuckDbStore(path, HALF_LIFE_S)
    with duckdb.connect(path) as other:
        assert other.execute("SHOW TABLES").fetchall() == before


def test_a_file_in_which_a_server_was_its_node_alone_has_it_of_the_type_it_had_last(tmp_path: Path) -> None:
    path = str(tmp_path / "store.duckdb")
    store = DuckDbStore(path, HALF_LIFE_S)
    store.add([observed("a0", throughput=40.0), observed("a0", "B", throughput=60.0, at=900.0)])
    store.close()
    with duckdb.connect(path) as file:
        file.execute("DELETE FROM evidence WHERE place = 'a0/A'")
        file.execute("UPDATE evidence SET place = 'a0' WHERE layer = 'entity'")
    for _ in range(2):
        again = DuckDbStore(path, HALF_LIFE_S)
        asked = msgspec.structs.replace(keys(("a0", False, 1)), places=["a0/B"])
        assert again.find(asked).mean.tolist() == [60.0]
        again.close()
