"""Encodes messages to bytes and decodes them: MessagePack, compressed when large. Only this module knows how.

A message of an earlier version is read as this version would have written it (`schemas/upgrades.py`). A fact
of a type that only a later version has decodes to None, so that its reader can count and skip it. Broken
bytes raise `Malformed`; the message then goes to the dead letters.
"""

import zlib
from typing import Any, Protocol, TypeVar

import msgspec

from schemas.base import Event, Message, Question, Sample
from schemas.events import FACTS, Fact
from schemas.questions import REPLIES, Asked, Refused
from schemas.samples import Reading
from schemas.upgrades import upgraded

COMPRESS_ABOVE_BYTES = 64 * 1024
EXPANDED_AT_MOST_BYTES = 64 * 1024 * 1024
_ZLIB = b"z"  # MessagePack maps and arrays never begin with 0x7a (a positive fixint does)

_encoder = msgspec.msgpack.Encoder()
_facts = msgspec.msgpack.Decoder(Fact)
_json_facts = msgspec.json.Decoder(Fact)
_samples = msgspec.msgpack.Decoder(Reading)
_questions = msgspec.msgpack.Decoder(Asked)

M = TypeVar("M")
M_co = TypeVar("M_co", covariant=True)


class _Form(Protocol):
    """msgspec's module for JSON, or the one for MessagePack."""

    def encode(self, obj: object, /) -> bytes: ...
    def decode(self, buf: bytes, /) -> Any: ...  # noqa: ANN401 - any document


class _Reader(Protocol[M_co]):
    def decode(self, buf: bytes, /) -> M_co: ...


class Malformed(ValueError):
    """The bytes are no message of this project; the text says why."""


def encode(message: Message) -> bytes:
    data = _encoder.encode(message)
    return _ZLIB + zlib.compress(data, 1) if len(data) > COMPRESS_ABOVE_BYTES else data


def encode_plain(message: Message) -> bytes:
    """Encode without compression: for questions and replies, whose senders wait for them."""
    return _encoder.encode(message)


def decode_fact(data: bytes) -> Event | None:
    """The fact; None: a type of fact that only a later version has. Raises Malformed."""
    plain = _expand(data)
    try:
        fact: Event = _facts.decode(plain)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if _tag(plain, "fact") not in (None, *FACTS):
            return None
        fact = _earlier(msgspec.msgpack, _facts, plain, error)
    return fact


def fact_of_json(line: bytes) -> Event:
    """The fact in a line of JSON, as event logs and the API write it. Raises Malformed."""
    try:
        fact: Event = _json_facts.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        fact = _earlier(msgspec.json, _json_facts, line, error)
    return fact


def decode_sample(data: bytes) -> Sample:
    plain = _expand(data)
    try:
        sample: Sample = _samples.decode(plain)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        sample = _earlier(msgspec.msgpack, _samples, plain, error)
    return sample


def _earlier(form: _Form, reader: _Reader[M], data: bytes, error: Exception) -> M:
    """Decode a message of an earlier version. Raises Malformed.

    `error`: why `data` could not be decoded as a message of this version.
    """
    try:
        return reader.decode(form.encode(upgraded(form.decode(data))))
    except (UnicodeDecodeError, AttributeError, LookupError, TypeError, ValueError):  # or of msgspec
        raise Malformed(str(error)) from None


def plain(data: bytes) -> object:
    """The content of any message as plain dicts, lists, strings and numbers. Raises Malformed."""
    try:
        return msgspec.msgpack.decode(_expand(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(str(error)) from None


def decode_question(data: bytes) -> Question:
    question: Question = _strict(_questions, data)
    return question


def decode_reply(question: Question, data: bytes) -> Message:
    """The reply to `question`, or `Refused`. Raises Malformed."""
    plain = _expand(data)
    kind = Refused if _tag(plain, "reply") == "refused" else REPLIES[type(question)]
    return _strict(msgspec.msgpack.Decoder(kind), plain)


def _strict(decoder: msgspec.msgpack.Decoder[M], data: bytes) -> M:
    try:
        return decoder.decode(_expand(data))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Malformed(str(error)) from None


def _expand(data: bytes) -> bytes:
    if not data.startswith(_ZLIB):
        return data
    stream = zlib.decompressobj()
    try:
        plain = stream.decompress(data[1:], EXPANDED_AT_MOST_BYTES)
    except zlib.error as error:
        raise Malformed(f"compressed message: {error}") from None
    if stream.unconsumed_tail or not stream.eof:
        raise Malformed(f"compressed message: cut short or above {EXPANDED_AT_MOST_BYTES} bytes")
    return plain


def _tag(data: bytes, field: str) -> str | None:
    try:
        raw = msgspec.msgpack.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError):
        return None
    tag = raw.get(field) if isinstance(raw, dict) else None
    return tag if isinstance(tag, str) else None
