"""The estimator's store rebuilt, where little of the log is in the stream any more."""

import asyncio
import itertools
import time
from pathlib import Path

from hopyard.actions.rebuild import _in_thread, _learn, _learnt, _observe
from schemas.base import Event
from schemas.codec import encode
from schemas.questions import ArchiveKind
from schemas.samples import ThroughputObserved
from schemas.settings import Settings
from schemas.subjects import FACTS_STREAM, sample_subject
from services.estimator.remake import Remake
from services.monitor.archive.plan import BYTES_AT_MOST, Segment
from services.monitor.archive.reader import ArchiveReader
from shared.runtime.bus.jetstream import JetStreamBus
from shared.runtime.process.nats_server import NatsServer
from tests.bus_nets import LIMIT_S
from tests.fact_builders import failed, joined
from tests.services.estimator.estimator_builders import observed, ran
from tests.shared.runtime.bus.bus_build import drained

FACTS, DROPPED, LONG = 20, 15, 10_000
TOKEN = "of a server that nobody else knows"


class Watched(Remake):
    """Knows what it learnt while nothing else could go on in the loop."""

    holding_up = 0

    def learn(self, fact: Event) -> None:
        super().learn(fact)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        self.holding_up += 1


async def trimmed(data: Path) -> Path:
    """A folder of a stack whose first facts are in the archive alone; where that is."""
    archive = data / "archive"
    server = NatsServer(data / "nats", token=TOKEN)
    await server.start()
    try:
        bus = await JetStreamBus.connect(Settings(nats_url=server.url, nats_token=TOKEN), "test", LIMIT_S)
        await bus.publish([failed(f"j-{seq}", place=f"pl-{seq}", at=float(seq)) for seq in range(FACTS)])
        rows = await bus.stored(FACTS_STREAM, 0, DROPPED, BYTES_AT_MOST)
        ArchiveReader(archive).write(Segment(ArchiveKind.FACTS, 1, DROPPED), rows)
        await bus.drop(FACTS_STREAM, DROPPED)
        await bus.close()
    finally:
        await server.stop()
    return archive


async def test_a_long_archive_does_not_hold_up_the_connection_to_nats(tmp_path: Path) -> None:
    """NATS would close the connection: it wants an answer every few minutes."""
    archive = await trimmed(tmp_path)
    made = Watched(tmp_path / "store.duckdb", half_life_s=1e6, counts=True)
    try:
        assert await _learnt(made, tmp_path, archive) == ()
    finally:
        made.close()
    assert (made.facts, made.holding_up) == (FACTS, FACTS - DROPPED)


def test_messages_of_an_agent_on_foreign_subjects_are_not_learnt(tmp_path: Path) -> None:
    """NATS has it, and so does the archive: the server looks at subjects alone, and readers at the rest."""
    made = Remake(tmp_path / "store.duckdb", half_life_s=1e6, counts=True)
    lie, seen = drained("node-2"), observed("a0")
    for subject in (joined("node-1").subject, lie.subject):
        _learn(made, (subject, encode(lie)))
    for fact in ran(seen):
        made.learn(fact)
    for sender in ("node-2", *seen.senders()):
        _observe(made, (sample_subject(ThroughputObserved, sender), encode(seen)))
    made.close()
    assert (made.facts, made.observations) == (1 + len(ran(seen)), 1)


def test_an_interrupted_rebuild_does_not_read_the_rest_of_the_archive(tmp_path: Path) -> None:
    """Where a loop ends it waits for its threads."""
    taken: list[bytes] = []

    def slowly(_: Remake, raw: bytes) -> None:
        taken.append(raw)
        time.sleep(0.001)

    async def interrupted() -> None:
        reading = asyncio.create_task(_in_thread(slowly, made, itertools.repeat(b"a fact", LONG)))
        while not taken:
            await asyncio.sleep(0)
        reading.cancel()

    made = Remake(tmp_path / "store.duckdb", half_life_s=1e6, counts=True)
    asyncio.run(interrupted())
    made.close()
    assert 0 < len(taken) < LONG
