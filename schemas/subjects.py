"""Every subject, stream and bucket on the bus, in one table.

hopyard.<entity>.<id>.<fact>     facts            stream HOPYARD, file storage
hopyard-sample.<kind>            samples          stream HOPYARD-SAMPLES, limited
hopyard.ask.<service>            questions        request/reply, not stored
hopyard-dead.<service>           dead letters     stream HOPYARD-DEAD, limited
"""

from collections.abc import Sequence

FACTS_STREAM = "HOPYARD"
ALL_FACTS = "hopyard.>"
FACT_SUBJECTS = tuple(
    f"hopyard.{entity}.*.*"
    for entity in ("job", "round", "profile", "plan", "policy", "placement", "node", "worker")
)

SAMPLES_STREAM = "HOPYARD-SAMPLES"
SAMPLE_PREFIX = "hopyard-sample"

DEAD_STREAM = "HOPYARD-DEAD"
DEAD_PREFIX = "hopyard-dead"

STATE_BUCKET = "hopyard-state"
"""cursors of the services, leases"""
SNAPSHOT_BUCKET = "hopyard-snapshots"


def facts_of(*entities: str) -> tuple[str, ...]:
    """The subjects of all facts about some kinds of entity."""
    return tuple(f"hopyard.{entity}.*.*" for entity in entities)


def entities_of(subjects: Sequence[str]) -> frozenset[str] | None:
    """The kinds of entity that some subjects are all facts about; None: they are about something else."""
    entities = [subject.removeprefix("hopyard.").removesuffix(".*.*") for subject in subjects]
    return frozenset(entities) if tuple(subjects) == facts_of(*entities) else None


def entity_of(subject: str) -> str:
    """The kind of entity that a fact's subject names."""
    return subject.split(".", 2)[1]


def orders_to(node_id: str) -> str:
    """What an agent hears: all facts about workers on its node, its own included."""
    return f"hopyard.worker.{node_id}.*"
