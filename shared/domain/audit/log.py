"""What every rule of the audit reads: the log without repetitions, and what was broken."""

from collections.abc import Iterable, Iterator

import msgspec

from schemas.base import Event
from schemas.cluster import Node
from schemas.events import JobEvent, JobSubmitted, NodeJoined
from schemas.ids import JobId, NodeId
from schemas.jobs import JobSpec
from shared.domain.states import IllegalMove, JobState, next_state


class Violation(msgspec.Struct, frozen=True):
    rule: str
    detail: str
    at: float
    """cluster time of the fact that broke the rule"""
    event_id: str


class Log(msgspec.Struct, frozen=True):
    facts: list[tuple[int, Event]]
    """(stream sequence, fact), each fact once: a repetition changes nothing"""
    specs: dict[JobId, JobSpec]
    nodes: dict[NodeId, Node]


def log_of(events: Iterable[Event], seqs: Iterable[int] | None = None) -> Log:
    """`seqs`: of the events in the stream; None: it is whole, so they count from 1."""
    facts: dict[str, tuple[int, Event]] = {}
    numbered = enumerate(events, start=1) if seqs is None else zip(seqs, events, strict=True)
    for seq, event in numbered:
        facts.setdefault(event.event_id, (seq, event))
    submitted = (fact for _, fact in facts.values() if isinstance(fact, JobSubmitted))
    joined = (fact for _, fact in facts.values() if isinstance(fact, NodeJoined))
    return Log(
        list(facts.values()),
        {fact.job_id: fact.spec for fact in submitted},
        {fact.node_id: fact.node for fact in joined},
    )


class Move(msgspec.Struct, frozen=True):
    """A fact about a job, and what the table of states made of it."""

    seq: int
    fact: JobEvent
    before: JobState | None
    after: JobState | None
    """None: the table has no such move, the fact is void"""


def moves(log: Log) -> Iterator[Move]:
    states: dict[JobId, JobState] = {}
    for seq, fact in log.facts:
        if not isinstance(fact, JobEvent):
            continue
        before = states.get(fact.job_id)
        try:
            after: JobState | None = next_state(before, fact)
        except IllegalMove:
            after = None
        if after is not None:
            states[fact.job_id] = after
        yield Move(seq, fact, before, after)


def broken(rule: str, fact: Event, detail: str) -> Violation:
    return Violation(rule, detail, fact.at, fact.event_id)
