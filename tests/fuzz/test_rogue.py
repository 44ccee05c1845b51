"""What an agent says of work that nobody ordered on its node changes nothing, in any service.

Its subject is its own, so the server lets it pass, and each of its facts is well-formed. The state of every core
is the same to the byte before and after, at many places of a story.
"""

from collections.abc import Iterator
from functools import cache

import msgspec
import pytest

from loadgen.simulation import simulate
from schemas.base import Event
from schemas.events import (
    JobSubmitted,
    Outcome,
    ProfileFailed,
    ProfileMeasured,
    ProfilingAdded,
    ProfilingPlanned,
    StartOrdered,
    WorkerCheckpointed,
    WorkerStarted,
    WorkerStopped,
)
from schemas.ids import GpuType, JobId, NodeId, PlacementId
from schemas.settings import Settings
from services.agent.core import Agent
from services.table import OF_NODE
from shared.runtime.bus.contract import Record
from shared.runtime.service import Service
from shared.runtime.shell.handling import Handling
from tests.fuzz.fed import CORES
from tests.simulation.storms import SMALL

ROGUE = NodeId("rogue")
EVERY = 25
"""facts of the story between two words of the rogue"""
LATE = 1_000_000
"""its facts are of no sequence of the story"""
POLICIES = ("hops", "hadare")
"""of one the gangs are copies"""
TYPES = (GpuType("titan-xp"), GpuType("rtx-3090"))
SAID = {WorkerStarted, WorkerCheckpointed, WorkerStopped, ProfileMeasured, ProfileFailed}
NOT_OF_WORK = {"node.joined", "node.drained", "node.gpus-withheld"}


@cache
def story(policy: str) -> tuple[Event, ...]:
    return tuple(simulate(SMALL, policy=policy).events)


def lies(job_id: JobId, placement_id: PlacementId, at: float) -> Iterator[Event]:
    """All that an agent can say of a piece of work."""
    work = {"at": at, "node_id": ROGUE, "job_id": job_id, "placement_id": placement_id}
    yield WorkerStarted(gpu_indices=(0,), samples_restored=1e9, meeting="rogue:1", **work)  # type: ignore[arg-type]
    yield WorkerCheckpointed(samples_done=1e9, **work)  # type: ignore[arg-type]
    for gpu_type in TYPES:
        once = (0.1,)
        yield ProfileFailed(gpu_type=gpu_type, reason="a lie", final=True, **work)  # type: ignore[arg-type]
        yield ProfileMeasured(
            gpu_type=gpu_type,
            data_s=once,
            forward_s=once,
            backward_s=once,
            update_s=once,
            iteration_s=(0.4,),
            parameters=1e6,
            **work,  # type: ignore[arg-type]
        )
    for outcome in Outcome:
        yield WorkerStopped(outcome=outcome, samples_done=1e9, leads=True, final=True, **work)  # type: ignore[arg-type]


def known_work(facts: tuple[Event, ...]) -> set[tuple[JobId, PlacementId]]:
    """Placements that were ordered, measurements that were planned, and jobs that wait for either."""
    ordered = {(fact.job_id, fact.placement_id) for fact in facts if isinstance(fact, StartOrdered)}
    rounds = [fact for fact in facts if isinstance(fact, ProfilingPlanned | ProfilingAdded)]
    planned = {(run.job_id, run.placement_id) for fact in rounds for run in fact.runs}
    waiting = {(fact.job_id, PlacementId("nowhere")) for fact in facts if isinstance(fact, JobSubmitted)}
    return ordered | planned | waiting


def state_of(handling: Handling) -> object:
    """But for the sequence up to which it was read."""
    plain = msgspec.msgpack.decode(msgspec.msgpack.encode(handling.core.state), strict=False)
    return {key: value for key, value in plain.items() if key != "seq"} if isinstance(plain, dict) else plain


def test_all_that_an_agent_may_say_of_work_is_said() -> None:
    assert {kind.tag() for kind in SAID} | NOT_OF_WORK == {kind.tag() for kind in OF_NODE[0].publishes}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", [name for name in CORES if name != "agent"])
def test_what_an_agent_says_of_others_work_changes_nothing(name: str, policy: str) -> None:
    facts = story(policy)
    handling = Handling(Service(name=name, core=CORES[name](), facts=()), Settings().remembered_ids)
    assert not isinstance(handling.core, Agent)
    handling.core.resume(0.0)
    said = 0
    for seq, fact in enumerate(facts, start=1):
        handling.turn([Record(seq, fact)], fact.at)
        if seq % EVERY:
            continue
        before = state_of(handling)
        for job_id, placement_id in sorted(known_work(facts[:seq])):
            for lie in lies(job_id, placement_id, fact.at):
                said += 1
                handling.core.handle(lie, fact.at)
                assert state_of(handling) == before, (seq, lie)
    assert said > 1_000
