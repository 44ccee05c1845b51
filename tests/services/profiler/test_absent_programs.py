"""A job whose program is missing: one node may lack it, two are believed, and no round is waited for."""

import msgspec
import pytest

from schemas.events import JobProfiled, JobRejected, ProfileRun, ProfilingAdded
from schemas.ids import GpuType, JobId
from tests.services.profiler.profiler_builders import (
    ROUND_S,
    SETTLE_S,
    Driver,
    absent,
    failed,
    joined,
    measured,
    stopped,
    submitted,
)


def driver(*nodes: str) -> Driver:
    """In the middle of round 0; a node of type A is named a0, a1 …"""
    there = Driver(at_once=True).until(100.0)
    return there.tell(*(joined(node, node[0].upper()) for node in nodes), submitted())


def runs(of: Driver) -> list[ProfileRun]:
    return [run for fact in of.all(ProfilingAdded) for run in fact.runs]


def lacks(of: Driver, run: ProfileRun) -> Driver:
    of.tell(absent(run), stopped(run))
    return of.until(of.now + 2 * SETTLE_S)


def test_another_node_is_tried_at_once_and_then_the_job_is_rejected() -> None:
    there = driver("a0", "a1", "a2")
    [first] = runs(there)
    lacks(there, first)
    [_, second] = runs(there)
    assert (first.node_id, second.node_id) == ("a0", "a1")
    lacks(there, second)
    [rejected] = there.all(JobRejected)
    assert rejected.reason == "it runs on no GPU type: on a0, a1: no train.py on a0"
    assert rejected.at < ROUND_S
    assert len(runs(there)) == 2


def test_a_lone_node_is_believed() -> None:
    there = driver("a0")
    lacks(there, *runs(there))
    assert len(there.all(JobRejected)) == 1


@pytest.mark.parametrize("before", ["", "exit code 127: hopyard: "])
def test_the_reason_is_the_agents_with_the_nodes_before_it(before: str) -> None:
    """Both agents reported that the program cannot be started."""
    there = driver("vm")
    [run] = runs(there)
    reason = f"{before}cannot be started: train.py: No such file or directory"
    there.tell(msgspec.structs.replace(absent(run), reason=reason), stopped(run))
    there.until(there.now + 2 * SETTLE_S)
    [rejected] = there.all(JobRejected)
    assert rejected.reason == f"it runs on no GPU type: on vm: {reason}"


def test_two_types_are_two_nodes() -> None:
    there = driver("a0", "a1", "b0")
    first, second = runs(there)
    there.tell(absent(first), absent(second))
    assert len(there.all(JobRejected)) == 1


def test_a_measurement_under_way_elsewhere_is_waited_for() -> None:
    there = driver("a0", "b0", "c0")
    first, second, third = runs(there)
    there.tell(absent(first), absent(second))
    assert there.all(JobRejected) == []
    there.tell(measured(third))
    [profiled] = there.all(JobProfiled)
    assert list(profiled.modules) == ["C"]
    assert "no train.py" in profiled.unusable[GpuType("A")]


def test_a_node_without_the_program_does_not_rule_out_its_type() -> None:
    there = driver("a0", "a1")
    lacks(there, *runs(there))
    there.tell(measured(runs(there)[1]))
    [profiled] = there.all(JobProfiled)
    assert list(profiled.modules) == ["A"]
    there.tell(submitted("j2"))
    assert there.all(JobProfiled)[-1].job_id == "j2"


def test_a_missing_program_is_no_attempt_on_the_type() -> None:
    there = driver("a0", "a1")
    lacks(there, *runs(there))
    there.tell(failed(runs(there)[-1], final=False))
    there.tell(failed(*there.next_round(), final=False))
    assert there.all(JobRejected) == []
    there.tell(failed(*there.next_round(), final=False))
    assert len(there.all(JobRejected)) == 1


def test_missing_programs_are_still_known_after_a_restart() -> None:
    there = driver("a0", "a1")
    lacks(there, *runs(there))
    again = Driver(at_once=True)
    for fact in there.stream:
        again.core.handle(fact, fact.at)
    assert again.core.state.jobs[JobId("j1")].absent == {"a0": "no train.py on a0"}
