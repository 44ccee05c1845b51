"""A rank is a user's process: whatever it says, facts and samples can be read, and its stop has an end."""

import os
import signal
import time
from pathlib import Path
from random import Random

import msgspec
import pytest

from schemas.codec import decode_fact, decode_sample, encode
from schemas.events import StartOrdered, WorkerStopped
from schemas.samples import Heartbeat, ThroughputObserved
from services.agent.process import worker
from services.agent.process.folders import RankFiles
from services.agent.process.gang import messages
from services.agent.process.gang.effects import Actions, SendLastReport, SendReport, SetTimer, Timer
from services.agent.process.gang.machine import Gang
from services.agent.process.gang.verdicts import ProcessEnd
from services.agent.tasks import Interrupted, Report, Saved
from shared.runtime.bus.limits import MAX_PAYLOAD_BYTES
from tests.services.agent.agent_bench import Bench, start
from tests.services.agent.process.process_bench import P1, order, running_node

TIMES = {f"{part}_s": [1.0] for part in ("data", "forward", "backward", "update", "iteration")}
PROFILED = {**TIMES, "parameters": 9.0}
OBSERVED: dict[str, object] = {"samples": 1, "seconds": 1, "iterations": 1, "batch": 1}
FIELDS: dict[str, tuple[dict[str, object], tuple[str, ...]]] = {
    "hello": ({"placement": "p1", "rank": 0, "pid": 1}, ("rank", "pid", "samples", "holds")),
    "up": ({}, ("port", "samples")),
    "profiled": (PROFILED, ("parameters", "memory_share")),
    "observed": (OBSERVED, tuple(OBSERVED)),
    "ready": ({"round": 1}, ("round", "kept", "peak", "whole")),
    "done": ({"round": 1}, ("round",)),
    "saved": ({"samples": 1}, ("samples", "seconds")),
    "stopped": ({}, ("samples",)),
    "completed": ({}, ("samples",)),
}
"""by message: what is valid, and the fields of it that are numbers"""
NUMBERS = [(key, field) for key, (_, fields) in FIELDS.items() for field in fields]
NOISE = Random(1).randbytes(1_900_000).hex()
"""facts are compressed"""
AT_MOST = {"samples": 1e30, "seconds": 1e12, "iterations": 1e12, "batch": 1e12, "data_s": [[1e30]] * 99}


def line(key: str, **fields: object) -> bytes:
    return msgspec.json.encode({key: FIELDS[key][0] | fields})


def heard(said: bytes) -> messages.RankMessage:
    message = messages.message_in(said)
    assert message is not None
    return message


def a_gang(of: StartOrdered) -> Gang:
    gang = Gang(of, has_plugin=True, host="h", port=None, observe_every_s=1.0)
    gang.begin()
    return gang


def reports(actions: Actions) -> list[Report]:
    return [one.report for one in actions if isinstance(one, SendReport | SendLastReport)]


@pytest.mark.parametrize(("key", "field"), NUMBERS)
def test_negative_huge_and_non_finite_numbers_of_a_rank_are_refused(key: str, field: str) -> None:
    assert messages.message_in(line(key)) is not None
    for number in (-1, 1e31, 10**40, "nan", "inf"):
        with pytest.raises(messages.NotAMessage):
            messages.message_in(line(key, **{field: number}))
        assert messages.message_in_file(line(key, **{field: number})) is None


@pytest.mark.parametrize(
    "said",
    [
        line("profiled", data_s=[-1.0]),
        line("profiled", data_s=[]),
        line("profiled", data_s=[1.0, 1.0]),
        line("profiled", **{name: [1.0] * 100_000 for name in TIMES}),
        line("profiled", modes=["lockstep"] * 100_000),
        line("observed", data_s=[[-1.0]]),
        line("observed", wait_s=[["inf"]]),
        line("saved", seconds=1e13),
        line("up", port=65_536),
        b'{"saved":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_no_list_is_without_bounds(said: bytes) -> None:
    with pytest.raises(messages.NotAMessage):
        messages.message_in(said)


def test_the_largest_numbers_a_rank_may_send_make_valid_samples() -> None:
    bench, ordered = Bench(), start(gpus=2)
    bench.tell(ordered)
    gang = a_gang(ordered)
    gang.train("")
    [observed] = reports(gang.heard(0, heard(line("observed", **AT_MOST))))
    assert gang.record.samples == 1e30
    progress = {ordered.job_id: gang.record.samples}
    beat = Heartbeat(at=1.0, node_id=ordered.node_id, life="1", workers=(P1,), progress=progress)
    assert decode_sample(encode(beat)) == beat
    bench.tell(observed)
    [sample] = [one for one in bench.sent if isinstance(one, ThroughputObserved)]
    assert len(sample.data_s) == ordered.gang.gpus
    assert decode_sample(encode(sample)) == sample


@pytest.mark.parametrize(
    "said",
    [
        line("stopped", samples=1e30),
        line("completed", samples=1e30),
        msgspec.json.encode({"failed": {"reason": NOISE}}),
        msgspec.json.encode({"lost": {"reason": NOISE}}),
    ],
)
def test_the_end_of_a_rank_fits_into_a_message_whatever_its_last_words_are(said: bytes) -> None:
    bench, ordered = Bench(), start()
    bench.tell(ordered)
    gang = a_gang(ordered)
    gang.heard(0, heard(said))
    [last] = reports(gang.ended(0, ProcessEnd(code=0)))
    [end] = bench.tell(last)
    assert isinstance(end, WorkerStopped)
    assert len(encode(end)) < MAX_PAYLOAD_BYTES // 2
    assert decode_fact(encode(end)) == end
    assert bench.owners() == {}


def test_the_grace_for_saving_that_a_rank_can_claim_is_bounded() -> None:
    gang = a_gang(start())
    gang.heard(0, heard(line("saved", seconds=1e12)))
    [timer] = [one for one in gang.stop() if isinstance(one, SetTimer)]
    assert timer.timer is Timer.GRACE
    assert timer.after_s == 2.5 + 2 * 600.0


def test_a_rank_that_is_ended_by_a_signal_without_a_name_has_an_end_like_any_other() -> None:
    gang = a_gang(start())
    [last] = reports(gang.ended(0, ProcessEnd(signal=signal.SIGRTMIN + 3)))
    assert getattr(last, "reason", "") == f"rank 0 was ended by signal {signal.SIGRTMIN + 3}"


async def test_of_checkpoints_that_a_rank_claims_in_a_hurry_few_become_facts() -> None:
    """The others count all the same, once the worker ends."""
    begin = time.monotonic()
    async with running_node() as node:
        await node.trained(order("saves=20000", f"kill={signal.SIGKILL}"))
        last = await node.ended()
        assert isinstance(last, Interrupted)
        assert last.samples_done == 19_999
        assert 1 <= len(node.of(Saved)) <= 1 + (time.monotonic() - begin) / worker.SAVED_EVERY_S


def test_no_more_of_a_rank_s_result_file_is_read_than_one_line_may_have(tmp_path: Path) -> None:
    files = RankFiles(tmp_path, 0)
    files.last.parent.mkdir()
    files.last.touch()
    os.truncate(files.last, 1 << 40)
    assert len(worker._read(files)) == messages.LINE_MAX_BYTES
