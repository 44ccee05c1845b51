"""What version 0.1.0 wrote keeps its meaning: facts, samples and the figures made of them."""

import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hopyard.show.events import fact_line
from hopyard.show.times import Times
from loadgen.results import run_result
from schemas.base import Event
from schemas.codec import Malformed, decode_fact, decode_sample, encode, fact_of_json
from schemas.events import JobPreempted, JobStarted, PlanPublished, StartOrdered
from schemas.ids import NodeId
from schemas.placement import LOCKSTEP, Gang
from schemas.results import RunResult
from schemas.samples import ThroughputObserved
from schemas.settings import Settings
from schemas.upgrades import upgraded
from shared.domain.audit import audit

HERE = Path(__file__).parents[1] / "data" / "versions" / "0.1.0"


@cache
def lines() -> list[bytes]:
    return lzma.decompress((HERE / "tiny.ndjson.xz").read_bytes()).splitlines()


@cache
def log() -> list[Event]:
    return [fact_of_json(line) for line in lines()]


def raw() -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines()]


def of_kind(tag: str) -> dict[str, Any]:
    return next(one for one in raw() if one["fact"] == tag)


def test_the_fixture_is_of_the_old_form() -> None:
    assert isinstance(of_kind("job.started")["configuration"], dict)
    assert isinstance(of_kind("worker.start-ordered")["gang"], list)


def test_an_old_log_breaks_no_rule() -> None:
    assert audit(log(), drained=True) == []


def test_an_old_log_gives_the_figures_it_gave_then() -> None:
    then = msgspec.json.decode((HERE / "tiny-result.json").read_bytes(), type=RunResult)
    now = run_result(
        log(),
        scenario=then.scenario,
        policy=then.policy,
        seed=then.seed,
        speed=then.speed,
        settings=msgspec.convert(then.settings, Settings),
        wall_s=then.wall_s,
    )
    added = {
        *("cru_slots", "jain_equal", "merges", "merge_steps_mean", "merge_steps_max", "copy_share_max"),
        *("weighted_jct_s", "switch_s_mean"),
    }
    assert now.metrics.keys() - then.metrics.keys() == added, "since"
    assert {name: now.metrics[name] for name in then.metrics} == then.metrics
    anew = {
        name: getattr(now, name) for name in ("event_log_hash", "job_results", "metrics", "made_by")
    }  # seen above, of another form, or added
    assert msgspec.structs.replace(then, **anew) == now


def test_every_placement_is_the_same_gpus_in_lockstep() -> None:
    for before, fact in zip(raw(), log(), strict=True):
        match fact:
            case JobStarted(gang=gang):
                assert (gang.configuration, gang.sync) == (before["configuration"], LOCKSTEP)
            case PlanPublished(placements=placements):
                placed = [one["configuration"] for one in before["placements"]]
                assert [one.gang.configuration for one in placements] == placed
            case StartOrdered(gang=gang, nodes=nodes):
                pairs = [(one["node_id"], gpus) for one, gpus in before["gang"]]
                assert [(one.node, one.gpus) for one in gang.members] == pairs
                assert [node.node_id for node in nodes] == [node_id for node_id, _ in pairs]


def test_the_stream_s_messages_are_read_like_the_log_s_lines() -> None:
    """In MessagePack keys may be numbers; the rest is the same."""
    fact = of_kind("plan.published")
    fact["memory"] = b""
    assert isinstance(decode_fact(msgspec.msgpack.encode(fact)), PlanPublished)
    assert [decode_fact(encode(fact)) for fact in log()] == log()


def test_an_old_sample_is_read_too() -> None:
    sample = {
        "sample": "throughput",
        "at": 1.0,
        "fingerprint": "f",
        "job_id": "j",
        "placement_id": "p",
        "node_id": "a",
        "gpu_type": "t4",
        "gpus_on_node": 2,
        "configuration": {"b": 1, "a": 2},
        "seconds": 60.0,
        "throughput": 10.0,
    }
    seen = decode_sample(msgspec.msgpack.encode(sample))
    assert isinstance(seen, ThroughputObserved)
    assert seen.gang == Gang.of({NodeId("a"): 2, NodeId("b"): 1})


def test_a_message_of_this_version_is_left_as_it_is() -> None:
    for fact in log():
        here = msgspec.to_builtins(fact)
        assert upgraded(here) == here


def test_preemptions_of_an_old_log_have_no_cause_and_are_still_described() -> None:
    preempted = [fact for fact in log() if isinstance(fact, JobPreempted)]
    assert preempted
    assert {fact.cause for fact in preempted} == {None}
    assert all(" by a plan" in fact_line(fact, Times(None)) for fact in preempted)
    assert all(len(fact_line(fact, Times(None)).splitlines()) == 1 for fact in log())


@pytest.mark.parametrize(
    ("tag", "field", "value"),
    [
        ("job.started", "configuration", {}),
        ("job.started", "configuration", {"a": 0}),
        ("job.started", "configuration", None),
        ("worker.start-ordered", "gang", []),
        ("worker.start-ordered", "gang", [["a", 1]]),
        ("worker.start-ordered", "gang", [1]),
        ("plan.published", "placements", [{"configuration": {"a": "two"}}]),
    ],
)
def test_a_broken_message_of_the_old_form_is_malformed(tag: str, field: str, value: object) -> None:
    fact = of_kind(tag) | {field: value}
    with pytest.raises(Malformed):
        fact_of_json(json.dumps(fact).encode())
