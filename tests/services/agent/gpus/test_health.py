"""What readings and errors mean."""

from services.agent.gpus.health import broken, busy, seen_twice
from services.agent.gpus.nvml import GpuReading, Xid
from services.agent.gpus.xids import FATAL, fatal

UUIDS = ("GPU-a", "GPU-b")


def who(pid: int) -> str:
    return " (python3 of ann)" if pid == 7 else ""


def test_a_gpu_without_processes_is_not_busy() -> None:
    assert busy([GpuReading(), GpuReading(memory_used=2**30, utilisation=10)], who) == {}


def test_the_processes_that_use_a_gpu_are_named() -> None:
    found = busy([GpuReading(processes=(9, 7)), GpuReading(processes=tuple(range(10, 15)))], who)
    assert found == {
        0: "in use by process 7 (python3 of ann), process 9",
        1: "in use by process 10, process 11, process 12, 2 more",
    }


def test_a_gpu_used_by_an_invisible_process_is_busy() -> None:
    found = busy(
        [GpuReading(memory_used=2**30 + 1), GpuReading(utilisation=11), GpuReading(partitioned=True)], who
    )
    assert found == {
        0: "its memory is in use by no process that can be seen",
        1: "it computes for no process that can be seen",
        2: "it is cut into instances (MIG)",
    }


def test_errors_of_jobs_break_no_gpu() -> None:
    own = (13, 31, 43, 45, 94, 63, 12_345)
    assert broken([GpuReading()] * 2, [Xid(uuid="GPU-a", code=code) for code in own], UUIDS) == {}
    assert not any(map(fatal, own))


def test_fatal_errors_break_their_gpu() -> None:
    for code in FATAL:
        assert list(broken([], [Xid(uuid="GPU-b", code=code)], UUIDS)) == [1]
    assert broken([], [Xid(uuid="GPU-b", code=79)], UUIDS) == {1: "has fallen off the bus (Xid 79)"}


def test_a_fatal_error_without_a_gpu_id_breaks_all_gpus() -> None:
    assert list(broken([], [Xid(uuid="", code=79)], UUIDS)) == [0, 1]
    assert broken([], [Xid(uuid="GPU-of-another-node", code=79)], UUIDS) == {}


def test_a_gpu_that_needs_a_reset_is_broken() -> None:
    readings = [
        GpuReading(remap_pending=True),
        GpuReading(remap_failed=True, remap_pending=True),
        GpuReading(lost=True),
    ]
    assert broken(readings, [], ("a", "b", "c")) == {
        0: "memory rows are to be replaced: reset it",
        1: "memory rows cannot be replaced",
        2: "the driver cannot reach it",
    }


def test_a_gpu_is_busy_once_two_looks_in_a_row_show_it() -> None:
    assert seen_twice({0: "now", 1: "new"}, {0: "before", 2: "gone"}) == {0: "now"}
