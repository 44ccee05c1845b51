"""Every subject, stream and bucket on the bus, in one table.

hopyard.<entity>.<id>.<fact>     facts            stream HOPYARD, file storage
hopyard-sample.<kind>.<node>     samples          stream HOPYARD-SAMPLES, limited, in memory
hopyard-sample.throughput.<node> observations     stream HOPYARD-OBSERVATIONS, limited, on disk
hopyard.ask.<service>            questions        request/reply, not stored
hopyard-dead.<service>           dead letters     stream HOPYARD-DEAD, limited
hopyard-read.<node>.<what>       reads of streams by an agent, which a service answers; not stored
hopyard-parts.<node>.<token>     parts of a message to or from an agent that is too large; not stored
"""

from collections.abc import Callable, Iterable, Sequence

from schemas.base import Event, Sample
from schemas.events import FACTS, ProfileEvent

FACTS_STREAM = "HOPYARD"
ALL_FACTS = "hopyard.>"
FACT_SUBJECTS = tuple(dict.fromkeys(f"hopyard.{tag.split('.')[0]}.*.*" for tag in FACTS))

SAMPLES_STREAM = "HOPYARD-SAMPLES"
SAMPLE_PREFIX = "hopyard-sample"
OBSERVATIONS_STREAM = "HOPYARD-OBSERVATIONS"
"""stream of throughput samples, from which the estimator's store can be rebuilt"""

DEAD_STREAM = "HOPYARD-DEAD"
DEAD_PREFIX = "hopyard-dead"

READ_PREFIX = "hopyard-read"
PARTS_PREFIX = "hopyard-parts"

STATE_BUCKET = "hopyard-state"
"""key-value bucket for cursors, leases, claims, quarantines"""
STATE_SUBJECT = f"$KV.{STATE_BUCKET}"
SNAPSHOT_BUCKET = "hopyard-snapshots"

AGENT = "agent"
OF_NODES = ("node", "worker", "profile")
"""entities whose facts have a node's id in their subject"""


def node_of_key(key: str) -> str:
    """The node whose agent writes this key of the state bucket; empty: a service writes it."""
    kind, _, name = key.partition("/")
    of_agent = name.startswith(f"{AGENT}-")
    return name if kind == "claim" else name.removeprefix(f"{AGENT}-") if of_agent else ""


def state_subject(key: str) -> str:
    """The subject of a key of the state bucket. In an agent's key the node's id is a whole token.

    Permissions of NATS compare whole tokens, so an account can be limited to the keys of one node.
    """
    kind, _, _ = key.partition("/")
    node_id = node_of_key(key)
    return f"{STATE_SUBJECT}.{AGENT}.{node_id}.{kind}" if node_id else earlier_state_subject(key)


def earlier_state_subject(key: str) -> str:
    """The subject that version 0.1 used for a key."""
    return f"{STATE_SUBJECT}.{key}"


def sample_subject(kind: type[Sample], node_id: str = "*") -> str:
    """The subject of samples of one node, or (`*`) of all."""
    return f"{SAMPLE_PREFIX}.{kind.tag()}.{node_id}"


def is_subject_of(event: Event, subject: str) -> bool:
    """Whether a fact belongs on this subject: NATS checks only the subject of what is published."""
    return subject == event.subject


def was_subject_of(event: Event, subject: str) -> bool:
    """Whether version 0.1 published the fact here: it had the job's id in subjects of measurements."""
    by_job = f"hopyard.{event.tag().replace('.', '.{}.')}"
    return isinstance(event, ProfileEvent) and subject == by_job.format(event.job_id)


def is_subject_of_sample(sample: Sample, subject: str) -> bool:
    """Whether an agent that may send this sample may send on this subject."""
    return subject in {sample_subject(type(sample), node_id) for node_id in sample.senders()}


def facts_of(*entities: str) -> tuple[str, ...]:
    """The subjects of all facts about these kinds of entity."""
    return tuple(f"hopyard.{entity}.*.*" for entity in entities)


def subjects_of(kinds: Iterable[type[Event]], entity_id: str = "*") -> tuple[str, ...]:
    """The subjects of these kinds of fact, about one entity or (`*`) about all, in alphabetical order."""
    tags = sorted({kind.tag() for kind in kinds})
    return tuple(f"hopyard.{entity}.{entity_id}.{fact}" for entity, fact in (tag.split(".") for tag in tags))


def about_node(node_id: str) -> tuple[str, ...]:
    """The subjects of all facts about a node, but not about a job of the same name."""
    return tuple(f"hopyard.{entity}.{node_id}.*" for entity in OF_NODES)


class Filter:
    """Selects the facts that some subjects cover, out of those of a coarser subscription."""

    def __init__(self, subjects: Sequence[str]) -> None:
        """`subjects`: all of the form `hopyard.<entity>.<id>.<fact>`, with `*` for any id or any fact."""
        self._ids: dict[tuple[str, str], set[str]] = {}
        """ids by (entity, fact)"""
        for subject in subjects:
            _, entity, entity_id, fact = subject.split(".")
            self._ids.setdefault((entity, fact), set()).add(entity_id)

    def passes(self, subject: str) -> bool:
        _, entity, entity_id, fact = subject.split(".")
        return self._has(entity_id, entity, fact) or self._has(entity_id, entity, "*")

    def _has(self, entity_id: str, entity: str, fact: str) -> bool:
        ids = self._ids.get((entity, fact))
        return ids is not None and ("*" in ids or entity_id in ids)


def passing(subjects: Sequence[str]) -> Callable[[str], bool]:
    """A predicate: whether a fact's subject is covered by one of these; `hopyard.>` covers all."""
    return (lambda _: True) if ALL_FACTS in subjects else Filter(subjects).passes


def coarser(subjects: Sequence[str]) -> tuple[str, ...]:
    """Fewer subjects that cover these: all facts, or all of an entity, where several kinds are wanted."""
    parts = [subject.split(".") for subject in subjects]
    if any(len(part) != len(("hopyard", "entity", "id", "fact")) for part in parts):
        return tuple(dict.fromkeys(subjects))
    entities = dict.fromkeys(tuple(part[1:3]) for part in parts)
    if len(subjects) > 1 and all(entity_id == "*" for _, entity_id in entities):
        return (ALL_FACTS,)
    return tuple(
        next(iter(facts)) if len(facts) == 1 else f"hopyard.{entity}.{entity_id}.*"
        for entity, entity_id in entities
        if (facts := {".".join(part) for part in parts if tuple(part[1:3]) == (entity, entity_id)})
    )
