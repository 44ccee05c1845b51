"""Bytes and back, from this version, a later one, and none at all."""

import msgspec
import pytest

from schemas.base import Event
from schemas.codec import Malformed, decode_fact, decode_reply, decode_sample, encode
from schemas.events import FACTS, JobCancelled, NodeLost, WorkerStarted
from schemas.ids import JobId, NodeId, PlacementId
from schemas.questions import Refused, ShowStatus
from schemas.samples import Heartbeat
from schemas.subjects import FACT_SUBJECTS


def test_a_fact_survives_the_way() -> None:
    fact = JobCancelled(at=1.5, job_id=JobId("job-1"))
    assert decode_fact(encode(fact)) == fact


def test_a_large_message_is_compressed_and_survives() -> None:
    beat = Heartbeat(
        at=0.0, node_id=NodeId("a"), life="1", workers=tuple(PlacementId(f"p{n}") for n in range(50_000))
    )
    data = encode(beat)
    assert len(data) < 300_000
    assert decode_sample(data) == beat


def test_an_unknown_field_of_a_later_version_is_ignored() -> None:
    data = msgspec.msgpack.encode({"fact": "node.lost", "at": 1.0, "node_id": "a", "mood": "grim"})
    assert decode_fact(data) == NodeLost(at=1.0, node_id=NodeId("a"))


def test_a_fact_of_a_later_version_is_skipped() -> None:
    assert decode_fact(msgspec.msgpack.encode({"fact": "node.promoted", "at": 1.0})) is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"zoo",
        msgspec.msgpack.encode({"fact": "node.lost"}),
        msgspec.msgpack.encode({"fact": "node.lost", "at": "noon", "node_id": "a"}),
        msgspec.msgpack.encode([1, 2]),
        msgspec.msgpack.encode({"at": 1.0}),
    ],
)
def test_foreign_bytes_are_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        decode_fact(data)


def test_a_refusal_can_answer_any_question() -> None:
    refusal = Refused(reason="no such job")
    assert decode_reply(ShowStatus(), encode(refusal)) == refusal


def test_the_same_cause_gives_the_same_id_and_subject() -> None:
    first, again = (
        WorkerStarted(
            at=at, node_id=NodeId("a"), placement_id=PlacementId("p"), job_id=JobId("j"), gpu_indices=(0,)
        )
        for at in (1.0, 2.0)
    )
    assert first.event_id == again.event_id == "worker.started/p/a"
    assert first.subject == "hopyard.worker.a.started"


@pytest.mark.parametrize("kind", FACTS.values())
def test_every_fact_names_its_entity_and_identity_by_its_own_fields(kind: type[Event]) -> None:
    fields = {field.name for field in msgspec.structs.fields(kind)}
    assert {kind.entity_field, *kind.identity} <= fields
    assert f"hopyard.{kind.tag().split('.')[0]}.*.*" in FACT_SUBJECTS
