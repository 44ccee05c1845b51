"""Every subject, stream and bucket on the bus, in one table.

hopyard.<entity>.<id>.<fact>     facts            stream HOPYARD, file storage
hopyard-sample.<kind>            samples          stream HOPYARD-SAMPLES, limited
hopyard.ask.<service>            questions        request/reply, not stored
hopyard-dead.<service>           dead letters     stream HOPYARD-DEAD, limited
"""

FACTS_STREAM = "HOPYARD"
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


def orders_to(node_id: str) -> str:
    """What an agent hears: all facts about workers on its node, its own included."""
    return f"hopyard.worker.{node_id}.*"
