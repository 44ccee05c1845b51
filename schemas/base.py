"""Base structs: messages, and their kinds fact, sample and question; and files that users write."""

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import ClassVar, TypeVar

import msgspec

from schemas.ids import NodeId
from schemas.numbers import Time

V = TypeVar("V")


def written(default: V) -> V:
    """A default that is encoded even if its struct leaves out fields that hold their default."""
    field: V = msgspec.field(default_factory=lambda: default)
    return field


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """Any message. Readers ignore unknown fields, and new fields have defaults."""


class Event(Message, frozen=True, kw_only=True, tag_field="fact"):
    """A fact: something that happened at cluster time `at` (seconds).

    The tag reads `entity.fact`. `entity_field` names the field that holds the entity's id, and
    `identity` the fields that distinguish one occurrence from another. From these follow the event's id
    (`job.started/pl-7`), which is also its `Nats-Msg-Id`, and its subject
    (`hopyard.job.<job id>.started`). So the same cause gives the same id, however often it is published.
    """

    entity_field: ClassVar[str]
    identity: ClassVar[tuple[str, ...]]

    at: Time

    @property
    def event_id(self) -> str:
        return _naming(type(self))(self)

    @property
    def subject(self) -> str:
        entity, fact = self.tag().split(".")
        return f"hopyard.{entity}.{getattr(self, self.entity_field)}.{fact}"

    @classmethod
    @cache
    def tag(cls) -> str:
        return str(cls.__struct_config__.tag)


@cache
def _naming(kind: type[Event]) -> Callable[[Event], str]:
    """A function that gives a fact's id: its tag and its identity fields, joined by slashes."""
    form, values = kind.tag() + "/%s" * len(kind.identity), attrgetter(*kind.identity)
    return lambda event: form % values(event)


class Sample(Message, frozen=True, kw_only=True, tag_field="sample"):
    """A measurement among many, about one node. It may be lost, and is no fact."""

    at: Time
    node_id: NodeId

    @classmethod
    @cache
    def tag(cls) -> str:
        return str(cls.__struct_config__.tag)

    def senders(self) -> tuple[NodeId, ...]:
        """The nodes whose agents may have sent it."""
        return (self.node_id,)


class Question(Message, frozen=True, kw_only=True, tag_field="question"):
    """Asks a service or an agent for something, within a time limit. Its `subject` says which one answers."""

    subject: ClassVar[str]


class File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a file that a user writes. An unknown field is an error."""
