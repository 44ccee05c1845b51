"""Bytes and back: MessagePack, compressed when large. The one place that knows.

A message the reader does not know (a newer event type) decodes to None: count it and go on. A message
that is broken raises `Malformed`: it belongs with the dead letters.
"""

import zlib
from typing import TypeVar

import msgspec

from schemas.base import Event, Message, Question, Sample
from schemas.events import FACTS, Fact
from schemas.questions import REPLIES, Asked, Refused
from schemas.samples import Reading

COMPRESS_ABOVE_BYTES = 64 * 1024
EXPANDED_AT_MOST_BYTES = 64 * 1024 * 1024
_ZLIB = b"z"  # MessagePack maps and arrays never begin with 0x7a (a positive fixint does)

_encoder = msgspec.msgpack.Encoder()
_facts = msgspec.msgpack.Decoder(Fact)
_samples = msgspec.msgpack.Decoder(Reading)
_questions = msgspec.msgpack.Decoder(Asked)

M = TypeVar("M")


class Malformed(ValueError):
    """The bytes are not a message of ours; the text says why."""


def encode(message: Message) -> bytes:
    data = _encoder.encode(message)
    return _ZLIB + zlib.compress(data, 1) if len(data) > COMPRESS_ABOVE_BYTES else data


def encode_plain(message: Message) -> bytes:
    """Never compressed: for questions and replies, whose columns are large and for which somebody waits."""
    return _encoder.encode(message)


def decode_fact(data: bytes) -> Event | None:
    """The fact, or None for a fact of a later version."""
    plain = _expand(data)
    try:
        fact: Event = _facts.decode(plain)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if _tag(plain, "fact") not in (None, *FACTS):
            return None
        raise Malformed(str(error)) from None
    return fact


def decode_sample(data: bytes) -> Sample:
    sample: Sample = _strict(_samples, data)
    return sample


def decode_question(data: bytes) -> Question:
    question: Question = _strict(_questions, data)
    return question


def decode_reply(question: Question, data: bytes) -> Message:
    """The reply to `question`, or `Refused`."""
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
