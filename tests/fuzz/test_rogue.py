"""What an agent publishes about work that was not ordered on its node changes nothing in any service.

Its subject is its own, so the server lets it pass, and each of its facts is well-formed. Every core has the
same state before and after, at many places in a log.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

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
from shared.domain.core import Publish
from shared.runtime.bus.contract import Record
from shared.runtime.service import Service
from shared.runtime.shell.handling import Handling
from tests.fuzz.fed import CORES
from tests.simulation.storms import SMALL

ROGUE = NodeId("rogue")
EVERY = 40
"""facts of the log between two times that the rogue publishes"""
RECENT = 80
"""newest facts whose work it publishes about"""
POLICIES = ("hops", "hadare")
"""under the second, gangs are copies"""
ROOM = 100
"""sequences that are left before each fact of the log, for facts of the rogue"""
TYPES = (GpuType("titan-xp"), GpuType("rtx-3090"))
SAID: set[type[Event]] = {WorkerStarted, WorkerCheckpointed, WorkerStopped, ProfileMeasured, ProfileFailed}
NOT_OF_WORK = {"node.joined", "node.drained", "node.gpus-withheld"}
CONCLUDE = {"profiler", "placer", "monitor"}
"""services that publish what they conclude from facts of agents"""

IGNORED = {ROGUE, "revision", "fact_seqs"}
"""in the monitor's state: its count of changes, and the sequences of facts with a job's id"""


@cache
def story(policy: str) -> tuple[Event, ...]:
    return tuple(simulate(SMALL, policy=policy).events)


def lies(job_id: JobId, placement_id: PlacementId, at: float) -> Iterator[Event]:
    """Every fact that an agent can publish about a placement or a measurement."""
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


def known_work(facts: tuple[Event, ...]) -> list[tuple[JobId, PlacementId]]:
    """Placements that were ordered, measurements that were planned, and jobs that wait for either."""
    ordered = {(fact.job_id, fact.placement_id) for fact in facts if isinstance(fact, StartOrdered)}
    rounds = [fact for fact in facts if isinstance(fact, ProfilingPlanned | ProfilingAdded)]
    planned = {(run.job_id, run.placement_id) for fact in rounds for run in fact.runs}
    waiting = {(fact.job_id, PlacementId("nowhere")) for fact in facts if isinstance(fact, JobSubmitted)}
    return sorted(ordered | planned | waiting)


def state_of(handling: Handling) -> object:
    """The state of a core without what is about the rogue's own node, such as GPUs in use there."""
    return _without(msgspec.msgpack.decode(msgspec.msgpack.encode(handling.core.state), strict=False))


def _without(plain: Any) -> Any:  # noqa: ANN401 - any part of a state
    if isinstance(plain, list):
        return [_without(one) for one in plain if not _is_of_rogue(one)]
    if not isinstance(plain, dict):
        return plain
    kept = {key: _without(value) for key, value in plain.items() if key not in IGNORED}
    return {key: value for key, value in kept.items() if value not in ({}, [])}


def _is_of_rogue(plain: object) -> bool:
    return isinstance(plain, dict) and plain.get("node_id") == ROGUE


@pytest.mark.parametrize("name", [name for name in CORES if name != "agent"])
def test_a_false_fact_about_others_work_hides_no_true_fact_after_it(name: str) -> None:
    """Readers tell repetitions by a fact's id, so a false fact must not have the id of a true one."""
    facts = story("hops")
    alone, lied_to = (
        Handling(Service(name=name, core=CORES[name](), facts=()), Settings().remembered_ids)
        for _ in range(2)
    )
    said: list[str] = []
    for place, fact in enumerate(facts, start=1):
        seq = place * ROOM
        for before, lie in enumerate(said_first(fact), start=1):
            lied_to.turn([Record(seq - ROOM + before, lie)], fact.at)
            said.append(lie.event_id)
        for handling in (alone, lied_to):
            handling.turn([Record(seq, fact)], fact.at)
    assert state_of(lied_to) == state_of(alone)
    assert lied_to.counts.repeated - alone.counts.repeated == len(said) - len(set(said)), "of lies alone"
    assert len(said) > 100


@pytest.mark.parametrize("name", [name for name in CORES if name != "agent"])
def test_the_time_that_an_agent_states_moves_no_service_ahead(name: str) -> None:
    """Cluster time goes on from the newest fact of a service, whenever one begins again."""
    handling = Handling(Service(name=name, core=CORES[name](), facts=()), Settings().remembered_ids)
    handling.core.resume(0.0)
    published: list[Event] = []
    for seq, fact in enumerate(story("hops"), start=1):
        stated = replace(fact, at=1e12) if isinstance(fact, OF_NODE[0].publishes) else fact
        effects = handling.turn([Record(seq, stated)], fact.at)
        published += [effect.event for effect in effects if isinstance(effect, Publish)]
        assert all(event.at <= fact.at for event in published), published[-1]
    assert published or name not in CONCLUDE


def said_first(fact: Event) -> Iterator[Event]:
    """What the rogue publishes before an agent publishes this fact."""
    match fact:
        case WorkerStarted() | WorkerCheckpointed() | WorkerStopped() | ProfileMeasured() | ProfileFailed():
            yield from lies(fact.job_id, fact.placement_id, fact.at)
        case _:
            pass


def test_ids_of_facts_that_an_agent_may_publish_name_its_node() -> None:
    for entry in OF_NODE:
        for kind in entry.publishes:
            assert kind.entity_field == "node_id", kind
            assert "node_id" in kind.identity, kind


def test_every_fact_of_an_agent_about_work_is_covered() -> None:
    assert {kind.tag() for kind in SAID} | NOT_OF_WORK == {kind.tag() for kind in OF_NODE[0].publishes}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", [name for name in CORES if name != "agent"])
def test_facts_of_an_agent_about_others_work_change_nothing(name: str, policy: str) -> None:
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
        for job_id, placement_id in known_work(facts[max(seq - RECENT, 0) : seq]):
            for lie in lies(job_id, placement_id, fact.at):
                said += 1
                handling.core.handle(lie, fact.at)
        assert state_of(handling) == before, seq
    assert said > 100
