"""Which processes are restarted, in which order, and when nothing is touched at all."""

import os
from pathlib import Path

import pytest

from hopyard.actions.restart import named, ordered, restart
from hopyard.failures import Invalid, NotReady, Unreachable
from hopyard.local.data_folder import StackFile, write_stack_file

THERE = ["admission", "admission-2", "planner", "planner-2", "profiler", "agent-n1", "agent-planner"]


def test_admission_is_the_last_and_agents_come_before_it() -> None:
    assert ordered(THERE) == [
        *("profiler", "planner", "planner-2", "agent-n1", "agent-planner", "admission", "admission-2")
    ]


def test_a_service_is_all_of_its_instances_and_an_instance_is_itself() -> None:
    assert named(["planner"], THERE) == ["planner", "planner-2"]
    assert named(["planner-2", "agent-n1"], THERE) == ["planner-2", "agent-n1"]
    assert named([], THERE) == THERE


def test_a_name_that_no_process_has_is_refused_with_those_there_are() -> None:
    with pytest.raises(
        Invalid, match="there is no process planer; there are admission, admission-2, planner"
    ):
        named(["planer", "profiler"], THERE)


def test_without_a_running_stack_a_restart_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="no stack runs on"):
        list(restart(tmp_path, ()))
    gone = StackFile(api_url="http://127.0.0.1:1", nats_url="", pid=_ended(), pids={}, ports={})
    write_stack_file(tmp_path, gone)
    with pytest.raises(Unreachable, match="no stack runs on"):
        list(restart(tmp_path, ()))


def test_a_process_that_has_ended_by_itself_is_waited_for_like_any_other(tmp_path: Path) -> None:
    ended = _ended()
    stack = StackFile(
        api_url="http://127.0.0.1:1",
        nats_url="",
        pid=os.getpid(),
        pids={"agent-n1": ended},
        ports={"agent-n1": 1},
        last_errors={"agent-n1": "address already in use"},
    )
    write_stack_file(tmp_path, stack)
    with pytest.raises(NotReady, match="agent-n1 is not ready yet: address already in use"):
        list(restart(tmp_path, (), limit_s=0.0))


def _ended() -> int:
    """The process id of a child that has ended."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return pid
