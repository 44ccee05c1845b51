"""What a fact may never say can be neither made nor read."""

from typing import Any

import msgspec
import pytest

from schemas.base import Event
from schemas.codec import Malformed, decode_fact, encode
from tests.fact_builders import a_node, joined, start_ordered, worker_started

CONTRADICTIONS: list[tuple[Event, dict[str, Any]]] = [
    (joined("node-1"), {"node": a_node("node-2")}),
    (start_ordered(), {"nodes": (a_node("node-2"),)}),
    (worker_started(), {"gpu_indices": ()}),
    (worker_started(), {"gpu_indices": (1, 1)}),
]


@pytest.mark.parametrize(("fact", "change"), CONTRADICTIONS)
def test_a_fact_that_contradicts_itself_is_refused(fact: Event, change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"joins as|of its gang|at least one GPU"):
        msgspec.structs.replace(fact, **change)
    written = msgspec.msgpack.decode(encode(fact)) | msgspec.to_builtins(change)
    with pytest.raises(Malformed):
        decode_fact(msgspec.msgpack.encode(written))
