"""What a sender announces in parts: no more of it is fetched than a message may have, or than is of use."""

import asyncio

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import TimeoutError as NatsTimeoutError

from schemas.codec import Malformed
from shared.runtime.bus.jetstream.large_messages import HEADER, PARTS_AT_MOST, PARTS_AT_ONCE, fetched
from shared.runtime.bus.limits import MAX_PAYLOAD_BYTES, QUESTION_MAX_BYTES

WITHIN = "hopyard-parts.n-1"
ANNOUNCED = {HEADER: f"{WITHIN}.token {PARTS_AT_MOST}"}
PART = bytes(MAX_PAYLOAD_BYTES)


async def test_no_more_is_fetched_than_a_message_may_have() -> None:
    """A rogue agent could have a service take a gibibyte."""
    asked: list[bytes] = []

    async def ask(subject: str, index: bytes) -> Msg:
        asked.append(index)
        await asyncio.sleep(0)
        return Msg(Client(), subject, data=PART)

    with pytest.raises(Malformed, match=f"more than {QUESTION_MAX_BYTES} bytes"):
        await fetched(ask, b"", ANNOUNCED, within=WITHIN)
    assert len(asked) <= QUESTION_MAX_BYTES / len(PART) + 1 + PARTS_AT_ONCE


async def test_once_a_part_does_not_come_no_other_is_asked_for() -> None:
    asked: list[bytes] = []

    async def ask(subject: str, index: bytes) -> Msg:  # noqa: ARG001 - as the contract has it
        asked.append(index)
        await asyncio.sleep(0)
        raise NatsTimeoutError

    before = asyncio.all_tasks()
    with pytest.raises(NatsTimeoutError):
        await fetched(ask, b"", ANNOUNCED, within=WITHIN)
    assert asyncio.all_tasks() == before
    assert len(asked) < PARTS_AT_MOST
