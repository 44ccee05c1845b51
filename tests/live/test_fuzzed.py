"""A stack that works while messages that are nearly right come on every subject, again and out of order."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import msgspec
import nats
from nats.aio.client import Client

from hopyard.local.accounts import OF_STACK
from hopyard.local.credentials import account_of
from loadgen.simulation import simulate
from schemas.subjects import subjects_of
from services.table import OF_CLUSTER
from shared.runtime.bus.accounts import inbox_of
from tests.fuzz.inputs import QUESTIONS, SAMPLES
from tests.fuzz.mutation import Mutator, as_it_travels, encoded
from tests.live.live_builders import stack_and_client, submit_all
from tests.simulation.storms import SMALL
from tests.stack_watch import until

SECONDS = float(os.environ.get("FUZZ_SECONDS", "10"))
SEED = os.environ.get("FUZZ_SEED", "1")
AT_ONCE = 20
SERVICES = tuple(entry.name for entry in OF_CLUSTER)
NODES = ("titan-xp-0", "rtx-3090-1", "nobody")


def messages(random: Random) -> Iterator[tuple[str, str, bytes]]:
    """Whose account sends it, where, and what."""
    log = [as_it_travels(event) for event in simulate(SMALL, policy="hops").events]
    inputs = [as_it_travels(message) for message in (*QUESTIONS, *SAMPLES)]
    mutator = Mutator(SEED, [*log, *inputs])
    publishes = {entry.name: entry.publishes for entry in OF_CLUSTER}
    while True:
        user = random.choice(SERVICES)
        kind = random.choice(publishes[user])
        tag = kind.tag()
        own = [raw for raw in log if raw.get("type") == tag] or log
        raw = random.choice(own if random.random() < 0.7 else log)
        data = mutator.mutated(raw) if random.random() < 0.7 else encoded(raw)
        (subject,) = subjects_of([kind], random.choice((*NODES, "distributed-1", "plan-0-0")))
        yield user, subject, data
        asked = random.choice((*SERVICES, *(f"agent.{node}" for node in NODES)))
        yield "operator", f"hopyard.ask.{asked}", mutator.mutated(random.choice(inputs))


async def client_of(data: Path, url: str, user: str) -> Client:
    own = msgspec.json.decode(account_of(data, user).read_bytes(), type=dict[str, str])
    inbox = inbox_of(user).encode()
    return await nats.connect(url, user=user, password=own["password"], inbox_prefix=inbox)


async def test_no_message_ends_a_service(tmp_path: Path) -> None:
    print(f"FUZZ_SEED={SEED}")
    random = Random(SEED)
    sent = 0
    async with stack_and_client(tmp_path / "data") as (stack, client):
        await submit_all(client)
        by = {user: await client_of(stack.data, stack.nats.url, user) for user in OF_STACK}
        try:
            ends = time.monotonic() + SECONDS
            for user, subject, data in messages(random):
                reply = by[user].new_inbox() if subject.startswith("hopyard.ask.") else ""
                await by[user].publish(subject, data, reply=reply)
                sent += 1
                if sent % AT_ONCE == 0:
                    await by[user].flush()
                    if time.monotonic() > ends:
                        break
        finally:
            for each in by.values():
                await each.close()
        await until(client, lambda status: status.at > 0.0)
        ended = {running.program.name: running.last_error for running in stack.running if running.restarts}
        assert ended == {}
    assert sent > AT_ONCE
