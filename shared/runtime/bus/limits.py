"""Limits and rules that the buses have in common."""

import re

MAX_PAYLOAD_BYTES = 1_048_576
"""bytes of one message with its headers: the server's default"""
QUESTION_MAX_BYTES = 64 * 1_048_576
"""bytes of a question or a reply, which may travel in parts"""
READ_BATCH = 500
"""facts in a batch, at most"""
READ_AGAIN = 10_000
"""decoded facts that a process keeps, for readers that come to them later"""
ANSWERS_AT_ONCE = 256
"""questions that one server of a subject works on at the same time"""
DEAD_LETTERS = 1_000
"""dead letters kept"""
REASON_CHARS = 300
SEQ_DIGITS = 19
"""digits of the largest sequence number; a longer number is none"""
TTL_MIN_S = 1.0
"""shortest time to live that the server gives a value"""

_ID_HEADER_BYTES = len("NATS/1.0\r\nNats-Msg-Id: \r\n\r\n")
_KEY = re.compile(r"[-/_=a-zA-Z0-9]+(\.[-/_=a-zA-Z0-9]+)*")


def check_size(what: str, data: bytes, limit: int, *, message_id: str = "") -> bytes:
    """The data, unchanged. Raises ValueError if it is too large to send."""
    size = len(data) + (_ID_HEADER_BYTES + len(message_id.encode()) if message_id else 0)
    if size > limit:
        raise ValueError(f"{what} is {size} bytes, the bus takes at most {limit}")
    return data


def seq_of(value: bytes) -> int | None:
    """The sequence number that a stored cursor is; None: it is none."""
    return int(value) if value.isdigit() and len(value) <= SEQ_DIGITS else None


def check_key(key: str) -> str:
    """The key, unchanged. Raises ValueError if a bucket would not accept it."""
    if not _KEY.fullmatch(key):
        raise ValueError(f"not a key: {key!r}")
    return key
