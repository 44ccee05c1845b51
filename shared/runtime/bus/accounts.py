"""What each user of a NATS server may do: the subjects on which it may publish, and may subscribe. Pure.

A fact's subject shows who published it: the server lets no other account publish there, and a reader takes no
fact from another's subject. Services may read all facts: these hold no secrets of the stack.

    service      its own facts; questions to those it asks; its own cursor, lease, reports and snapshot;
                 the monitor also drops from streams what it has archived
    agent        its own facts about one node, its own values; no questions
    agents       of any node: for machines that are not known beforehand
    operator     questions of commands, whole streams for a backup; no fact

Services and commands share an account of NATS, which has the streams. The agent of each node has an account
of its own, which imports the subjects of its node. A NATS server publishes acknowledgements and replies on
whatever subject a message names, without a check of permissions. But it does so in the account that the
message came from, and from an agent's account no message reaches more than what the agent may publish anyway.
"""

from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from schemas.base import Event
from schemas.instances import instances_of
from schemas.quarantine import key_of
from schemas.samples import Heartbeat, ThroughputObserved
from schemas.subjects import (
    AGENT,
    DEAD_PREFIX,
    FACTS_STREAM,
    OBSERVATIONS_STREAM,
    PARTS_PREFIX,
    READ_PREFIX,
    SAMPLE_PREFIX,
    SNAPSHOT_BUCKET,
    STATE_BUCKET,
    STATE_SUBJECT,
    about_node,
    sample_subject,
    subjects_of,
)

INBOXES = "_INBOX"
MAPPED = "_R_"
"""prefix of the subjects on which the server returns replies to another account"""
AGENTS = "agents"
PLANNER = "planner"
ARCHIVER = "monitor"
"""the service that archives messages, and drops from the streams what is archived"""
ARCHIVE = "archive"
"""the subject on which the archiver answers questions about the archive"""
OPERATOR = "operator"
STREAMS_OWNER = "HOPYARD"
"""the account of NATS of all services, which has the streams"""
ADMISSION = "admission"
"""the service that makes the streams, and keeps facts that their stream cannot take at the moment"""
ASKS = {
    ADMISSION: (ADMISSION, "monitor", "planner", "agent.*"),
    "estimator": ("profiler", "agent.*"),
    PLANNER: ("estimator",),
    OPERATOR: (">",),
}
AGENTS_KEYS = ("claim", "cursor", "quarantine", "snapshot")
"""the values of a node's agent in the state bucket: no more than these, so that it cannot fill the disk"""
_KV, _OBJECTS = STATE_SUBJECT, f"$O.{SNAPSHOT_BUCKET}"
_FROM_AGENTS = (
    *about_node("*"),
    f"{SAMPLE_PREFIX}.*.*",
    *(f"{_KV}.{AGENT}.*.{key}" for key in AGENTS_KEYS),
    f"{READ_PREFIX}.*.*",
    f"{DEAD_PREFIX}.{AGENT}",
)
"""subjects that agents' accounts may import, each those of its node"""
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

    def plain(self) -> dict[str, object]:
        """As a server's configuration has them."""
        return {"publish": list(self.publish), "subscribe": list(self.subscribe)}


class NatsUser(msgspec.Struct, frozen=True, kw_only=True):
    """A user of the NATS server, with its permissions."""

    user: str
    password: str
    permissions: Permissions

    @property
    def node(self) -> str:
        """The node whose agent this user is; `*`: of any node; empty: no agent."""
        return (
            "*" if self.user == AGENTS else self.user.removeprefix(f"{AGENT}-") if is_agent(self.user) else ""
        )

    def plain(self) -> dict[str, object]:
        """As a server's configuration has it."""
        return {"user": self.user, "password": self.password, "permissions": self.permissions.plain()}


def is_agent(user: str) -> bool:
    return user == AGENTS or user.startswith(f"{AGENT}-")


def inbox_of(user: str) -> str:
    """The prefix of an account's inbox: no other account can subscribe to it."""
    return f"{INBOXES}.{user}"


def of_service(name: str, facts: Iterable[type[Event]]) -> Permissions:
    """The permissions of a service; `facts`: the types that it publishes."""
    snapshot = urlsafe_b64encode(name.encode()).decode()
    more = {
        ADMISSION: (
            "$JS.API.STREAM.CREATE.*",
            "$JS.API.STREAM.UPDATE.*",
            f"$JS.API.STREAM.LEADER.STEPDOWN.KV_{STATE_BUCKET}",
            f"{_KV}.settings",
            f"{_KV}.handoff/{name}",
        ),
        PLANNER: (f"{_KV}.{name}/policy",),
        ARCHIVER: tuple(_archiving()),
    }
    return Permissions(
        publish=(
            *subjects_of(facts),
            *_asking(name),
            f"hopyard.ask.{ARCHIVE}",
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
            f"{MAPPED}.>",
            f"{PARTS_PREFIX}.*.*",
            f"{DEAD_PREFIX}.{name}",
            *more.get(name, ()),
        ),
        subscribe=_hearing(
            name,
            name,
            f"{SAMPLE_PREFIX}.>",
            f"{READ_PREFIX}.>",
            *([f"hopyard.ask.{ARCHIVE}"] if name == ARCHIVER else []),
        ),
    )


def _archiving() -> Iterator[str]:
    for stream in (FACTS_STREAM, OBSERVATIONS_STREAM):
        yield f"$JS.API.STREAM.PURGE.{stream}"
        yield f"$JS.API.CONSUMER.CREATE.{stream}"
        yield f"$JS.API.CONSUMER.CREATE.{stream}.>"
        yield f"$JS.API.CONSUMER.DELETE.{stream}.*"
        yield f"$JS.API.CONSUMER.INFO.{stream}.*"


def of_node(node_id: str, facts: Iterable[type[Event]]) -> Permissions:
    """The permissions of the agent of one node, or (`*`) of any node."""
    user = AGENTS if node_id == "*" else f"{AGENT}-{node_id}"
    return Permissions(
        publish=(*published(node_id, facts), f"{MAPPED}.>"),
        subscribe=_hearing(user, f"{AGENT}.{node_id}", f"{PARTS_PREFIX}.{node_id}.*", *about_node(node_id)),
    )


def published(node_id: str, facts: Iterable[type[Event]]) -> tuple[str, ...]:
    """The subjects under which the services see what an agent publishes."""
    return (
        *subjects_of(facts, node_id),
        *(sample_subject(kind, node_id) for kind in (Heartbeat, ThroughputObserved)),
        *(f"{_KV}.{AGENT}.{node_id}.{key}" for key in AGENTS_KEYS),
        f"{READ_PREFIX}.{node_id}.*",
        f"{DEAD_PREFIX}.{AGENT}",
    )


def of_operator(services: Sequence[str]) -> Permissions:
    return Permissions(
        publish=(
            *_asking(OPERATOR),
            *_READING,
            *(f"{_KV}.{key_of(name)}" for name in services),
            f"{_KV}.{AGENT}.*.quarantine",
            "$JS.API.STREAM.MSG.GET.*",
            "$JS.API.STREAM.SNAPSHOT.*",
            "$JS.SNAPSHOT.ACK.>",
            f"{INBOXES}.>",
            f"{PARTS_PREFIX}.*.*",
        ),
        subscribe=(f"{inbox_of(OPERATOR)}.>", f"{SAMPLE_PREFIX}.>"),
    )


def server_accounts(users: Sequence[NatsUser]) -> dict[str, object]:
    """The block `accounts` of a server's configuration."""
    agents = [user for user in users if user.node]
    services = {
        "jetstream": "enabled",
        "users": [user.plain() for user in users if not user.node],
        "exports": [
            *({"stream": subject} for subject in about_node("*")),
            *({"service": subject} for subject in _FROM_AGENTS),
        ],
        "imports": [
            _service(_account_of(user), subject) for user in agents for subject in _answered(user.node)
        ],
    }
    return {STREAMS_OWNER: services, **{_account_of(user): _of_agent(user) for user in agents}}


def _of_agent(user: NatsUser) -> dict[str, object]:
    heard = [{"stream": {"account": STREAMS_OWNER, "subject": subject}} for subject in about_node(user.node)]
    said = [subject for subject in user.permissions.publish if not subject.startswith(f"{MAPPED}.")]
    return {
        "users": [user.plain()],
        "exports": [{"service": subject, "accounts": [STREAMS_OWNER]} for subject in _answered(user.node)],
        "imports": [*heard, *(_service(STREAMS_OWNER, subject) for subject in said)],
    }


def _account_of(user: NatsUser) -> str:
    return user.user.upper()


def _answered(node_id: str) -> tuple[str, ...]:
    """The subjects on which an agent answers questions."""
    return f"hopyard.ask.{AGENT}.{node_id}", f"{PARTS_PREFIX}.{node_id}.*"


def _service(account: str, subject: str) -> dict[str, object]:
    return {"service": {"account": account, "subject": subject}}


def _asking(name: str) -> tuple[str, ...]:
    return tuple(f"hopyard.ask.{asked}" for asked in ASKS.get(name, ()))


def _hearing(user: str, asked_as: str, *more: str) -> tuple[str, ...]:
    return (f"{inbox_of(user)}.>", f"hopyard.ask.{asked_as}", "$SRV.>", *more)
