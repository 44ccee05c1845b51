"""What each account may do at a NATS server: the subjects it publishes on, and those it hears. Pure.

Who published a fact is seen by its subject, which the server guards; a reader takes no fact from another's
subject. Readers may read all: facts hold no secrets of the stack.

    service      its own facts; questions to those it asks; its own cursor, lease, reports and snapshot
    agent        the same of one node
    agents       of any node: for machines that are not known beforehand
    operator     questions of commands, whole streams for a backup; no fact
"""

from base64 import urlsafe_b64encode
from collections.abc import Iterable, Sequence

import msgspec

from schemas.base import Event
from schemas.instances import instances_of
from schemas.samples import Heartbeat, ThroughputObserved
from schemas.subjects import (
    DEAD_PREFIX,
    FACTS_STREAM,
    SAMPLE_PREFIX,
    SNAPSHOT_BUCKET,
    STATE_BUCKET,
    sample_subject,
    subjects_of,
)

INBOXES = "_INBOX"
AGENT = "agent"
AGENTS = "agents"
PLANNER = "planner"
OPERATOR = "operator"
ENSURER = "admission"
"""makes the streams; the others wait for them"""
ASKS = {
    "admission": ("admission", "monitor", "planner", "agent.*"),
    "estimator": ("profiler", "agent.*"),
    PLANNER: ("estimator",),
    AGENT: ("agent.*",),
    OPERATOR: (">",),
}
_KV, _OBJECTS = f"$KV.{STATE_BUCKET}", f"$O.{SNAPSHOT_BUCKET}"
_READING = (
    "$JS.API.STREAM.INFO.*",
    f"$JS.API.CONSUMER.CREATE.{FACTS_STREAM}.>",
    f"$JS.API.CONSUMER.MSG.NEXT.{FACTS_STREAM}.*",
    f"$JS.API.CONSUMER.DELETE.{FACTS_STREAM}.*",
)


class Permissions(msgspec.Struct, frozen=True, kw_only=True):
    """As NATS has them; nothing else is allowed."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    never: tuple[str, ...] = ()
    """of `publish`"""

    def plain(self) -> dict[str, object]:
        """As a server's configuration has them."""
        allowed: dict[str, object] = {"allow": list(self.publish)}
        return {
            "publish": allowed | ({"deny": list(self.never)} if self.never else {}),
            "subscribe": list(self.subscribe),
        }


def inbox_of(user: str) -> str:
    """Where replies to an account go: nobody else hears them."""
    return f"{INBOXES}.{user}"


def replies_of(asker: str, node_id: str) -> str:
    """Where, below the inbox of who asked, the agent of a node replies: of all inboxes it reaches this alone.

    A server that lets it reply wherever it is asked to would let it publish anything: it can ask itself.
    """
    return f"{inbox_of(asker)}.from.{node_id}"


def of_service(name: str, facts: Iterable[type[Event]]) -> Permissions:
    """`facts`: those that are its own to tell."""
    snapshot = urlsafe_b64encode(name.encode()).decode()
    more = {
        ENSURER: ("$JS.API.STREAM.CREATE.*", "$JS.API.STREAM.UPDATE.*", f"{_KV}.settings"),
        PLANNER: (f"{_KV}.{name}/policy",),
    }
    return Permissions(
        publish=(
            *subjects_of(facts),
            *_asking(name),
            *(f"{_KV}.{kind}/{name}" for kind in ("cursor", "lease", "quarantine")),
            *(f"{_KV}.service/{instance}" for instance in instances_of(name)),
            f"hopyard.service.{name}.led",
            f"{_OBJECTS}.M.{snapshot}",
            f"{_OBJECTS}.C.*",
            *_READING,
            "$JS.API.STREAM.NAMES",
            "$JS.API.STREAM.MSG.GET.*",
            f"$JS.API.STREAM.PURGE.OBJ_{SNAPSHOT_BUCKET}",
            f"$JS.API.CONSUMER.CREATE.OBJ_{SNAPSHOT_BUCKET}",
            f"$JS.API.CONSUMER.CREATE.OBJ_{SNAPSHOT_BUCKET}.>",
            f"$JS.API.CONSUMER.DELETE.OBJ_{SNAPSHOT_BUCKET}.*",
            f"$JS.API.CONSUMER.INFO.OBJ_{SNAPSHOT_BUCKET}.*",
            "$JS.FC.>",
            f"{INBOXES}.>",  # replies, and requests for parts of what is too large for one message
            f"{DEAD_PREFIX}.{name}",
            *more.get(name, ()),
        ),
        subscribe=_hearing(name, name, f"{SAMPLE_PREFIX}.>"),
    )


def of_node(node_id: str, facts: Iterable[type[Event]]) -> Permissions:
    """Of the agent of one node."""
    keys = (
        f"cursor/{AGENT}-{node_id}",
        f"claim/{node_id}",
        f"snapshot/{AGENT}-{node_id}",
        f"quarantine/{AGENT}-{node_id}",
    )
    return _of_agents(node_id, f"{AGENT}-{node_id}", facts, keys)


def of_any_node(facts: Iterable[type[Event]], services: Sequence[str]) -> Permissions:
    """Of agents whose nodes nobody knows beforehand. What is the services' own is not theirs."""
    whole = _of_agents("*", AGENTS, facts, ("*",))
    theirs = [f"{kind}/{name}" for kind in ("cursor", "lease", "quarantine") for name in services]
    theirs += [f"service/{instance}" for name in services for instance in instances_of(name)]
    never = tuple(f"{_KV}.{key}" for key in (*theirs, f"{PLANNER}/policy", "settings"))
    return msgspec.structs.replace(whole, never=never)


def of_operator() -> Permissions:
    return Permissions(
        publish=(
            *_asking(OPERATOR),
            *_READING,
            f"{_KV}.quarantine/*",
            "$JS.API.STREAM.MSG.GET.*",
            "$JS.API.STREAM.SNAPSHOT.*",
            "$JS.SNAPSHOT.ACK.>",
            f"{INBOXES}.>",
        ),
        subscribe=(f"{inbox_of(OPERATOR)}.>", f"{SAMPLE_PREFIX}.>"),
    )


def _of_agents(node_id: str, user: str, facts: Iterable[type[Event]], keys: Iterable[str]) -> Permissions:
    return Permissions(
        publish=(
            *subjects_of(facts, node_id),
            *(sample_subject(kind, node_id) for kind in (Heartbeat, ThroughputObserved)),
            *_asking(AGENT),
            f"{replies_of('*', node_id)}.>",
            *(f"{_KV}.{key}" for key in keys),
            "$JS.API.STREAM.INFO.*",
            f"$JS.API.STREAM.MSG.GET.{FACTS_STREAM}",
            f"$JS.API.STREAM.MSG.GET.KV_{STATE_BUCKET}",
            f"{DEAD_PREFIX}.{AGENT}",
        ),
        subscribe=_hearing(user, f"{AGENT}.{node_id}", f"hopyard.*.{node_id}.*"),
    )


def _asking(name: str) -> tuple[str, ...]:
    return tuple(f"hopyard.ask.{asked}" for asked in ASKS.get(name, ()))


def _hearing(user: str, asked_as: str, *more: str) -> tuple[str, ...]:
    return (f"{inbox_of(user)}.>", f"hopyard.ask.{asked_as}", "$SRV.>", *more)
