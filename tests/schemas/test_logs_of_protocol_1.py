"""What services wrote before fields of plans and of who leads had other names keeps its meaning."""

import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from schemas.base import Event
from schemas.codec import Malformed, decode_fact, encode, fact_of_json
from schemas.events import PlanPublished, ServiceLed
from schemas.upgrades import upgraded
from shared.domain.audit import audit

LOG = Path(__file__).parents[1] / "data" / "versions" / "0.1.0-482e3b2" / "tiny.ndjson.xz"
LED = {"fact": "service.led", "at": 3.0, "service": "planner", "instance": 1, "token": 7, "again": 2}


@cache
def lines() -> list[bytes]:
    return lzma.decompress(LOG.read_bytes()).splitlines()


@cache
def log() -> list[Event]:
    return [fact_of_json(line) for line in lines()]


def raw() -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines()]


def left_out() -> list[dict[str, Any]]:
    """As the log has them."""
    return [left for fact in raw() if fact["fact"] == "plan.published" for left in fact["left_out"]]


def test_the_log_is_of_the_old_form() -> None:
    assert any(left["to"] for left in left_out())


def test_an_old_log_breaks_no_rule() -> None:
    assert audit(log(), drained=True) == []


def test_the_holders_named_by_an_old_plan_are_read() -> None:
    plans = [fact for fact in log() if isinstance(fact, PlanPublished)]
    now = [(left.job_id, list(left.held_by)) for plan in plans for left in plan.left_out]
    assert now == [(left["job_id"], left["to"]) for left in left_out()]


@pytest.mark.parametrize("again", [0, 2])
def test_a_repeated_lead_of_the_old_form_keeps_the_id_of_its_fact(again: int) -> None:
    led = fact_of_json(json.dumps(LED | {"again": again}).encode())
    assert led == decode_fact(msgspec.msgpack.encode(LED | {"again": again}))
    assert isinstance(led, ServiceLed)
    assert (led.repetition, led.event_id) == (again, f"service.led/planner/7/{again}")


def test_a_fact_of_this_version_is_left_as_it_is() -> None:
    assert [decode_fact(encode(fact)) for fact in log()] == log()
    for fact in (*log(), fact_of_json(json.dumps(LED).encode())):
        here = msgspec.to_builtins(fact)
        assert upgraded(here) == here


@pytest.mark.parametrize("left", [None, {}, [1], [{"to": [1]}]])
def test_a_broken_plan_of_the_old_form_is_malformed(left: object) -> None:
    plan = next(fact for fact in raw() if fact["fact"] == "plan.published")
    with pytest.raises(Malformed):
        fact_of_json(json.dumps(plan | {"left_out": left}).encode())
