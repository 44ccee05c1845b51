"""What a stack of processes bears of clients that ask for too much: each is refused, and it goes on.

The tests share one stack and run in their order; the last one looks at the whole log.
"""

import asyncio
import contextlib
import resource
import struct
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import msgspec
import pytest
import pytest_asyncio

from hopyard.api.client import Client
from hopyard.local.accounts import agent_of
from hopyard.local.credentials import account_of
from hopyard.local.stack import Stack
from schemas.samples import Heartbeat
from schemas.settings import Settings
from services.admission.http.api import FOLLOWERS_MAX
from shared.domain.audit import audit
from shared.runtime.bus.jetstream import JetStreamBus
from tests.fact_builders import checkpointed
from tests.live.live_builders import stack_and_client
from tests.stack_watch import LIMIT_S, busy, until

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

Running = tuple[Stack, Client]

SPEED = 10.0
"""no job has to end, and every fact goes to many followers"""
OPEN_MAX = 300
SUBMITTED = 10_000
AT_ONCE = 100
FOLLOWERS = 400
NODES = 4
SILENT = 30
"""connections of each kind, together fewer than a server begins to hurry at"""
MIB = 2**20
MORE_MIB = 150
"""what a service may take more while it is flooded"""
JOB = "{name: a, workload: {model: resnet18, dataset: cifar10, batch_size: 256}, gpus: 1, samples: 1e9}"
GZIP = b"\x1f\x8b\x08" + bytes(7)
"""how a file of it begins"""
BILLION_LAUGHS = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{this}: &{this} [{','.join([f'*{last}'] * 9)}]\n"
    for last, this in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    data = tmp_path_factory.mktemp("stack") / "data"
    async with stack_and_client(data, speed=SPEED, jobs_open_max=str(OPEN_MAX)) as (stack, client):
        yield stack, client


def pid_of(stack: Stack, name: str) -> int:
    return next(running.process.pid for running in stack.running if running.program.name == name)


def peaks_mib(stack: Stack) -> dict[str, int]:
    """The most memory that each process has had, by name."""
    return {running.program.name: _peak_mib(running.process.pid) for running in stack.running}


def _peak_mib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


@contextlib.contextmanager
def bounded(stack: Stack) -> Iterator[None]:
    """Nobody takes much more memory, and nobody dies."""
    before, lives = peaks_mib(stack), {one.program.name: one.process.pid for one in stack.running}
    yield
    after = peaks_mib(stack)
    assert {
        name: after[name] - before[name] for name in before if after[name] > before[name] + MORE_MIB
    } == {}
    assert {one.program.name: one.process.pid for one in stack.running} == lives


def session_of(stack: Stack, **more: str) -> aiohttp.ClientSession:
    headers = {"Authorization": f"Bearer {stack.token}", **more}
    return aiohttp.ClientSession(
        stack.api_url, headers=headers, connector=aiohttp.TCPConnector(limit=AT_ONCE)
    )


async def answered(response: aiohttp.ClientResponse) -> tuple[int, str]:
    """Status, and the words of a refusal."""
    body = await response.read()
    if response.content_type == "application/problem+json":
        return response.status, msgspec.json.decode(body)["detail"]
    return response.status, ""


async def test_ten_thousand_jobs_at_once_are_accepted_or_refused_in_words(running: Running) -> None:
    stack, client = running

    async def submit(session: aiohttp.ClientSession, number: int) -> tuple[int, str]:
        """A connection may be closed just as it is used again; with the key another try is harmless."""
        key = {"Idempotency-Key": f"flood-{number}"}
        while True:
            with contextlib.suppress(aiohttp.ClientConnectionError):
                async with session.post("/v1/jobs", data=JOB, headers=key) as response:
                    return await answered(response)

    with bounded(stack):
        async with session_of(stack, **{"Content-Type": "application/yaml"}) as session:
            async with asyncio.timeout(LIMIT_S):
                got = Counter(await asyncio.gather(*(submit(session, number) for number in range(SUBMITTED))))
        await until(client, busy)
    assert sum(got.values()) == SUBMITTED
    assert got[201, ""] + got[200, ""] == OPEN_MAX  # 200: an earlier try had been taken
    assert {status for status, _ in got} <= {200, 201, 429, 503}
    assert all(words for status, words in got if status > 201)


async def test_followers_that_do_not_read_are_limited_and_cost_little(running: Running) -> None:
    stack, client = running
    lines = ["GET /v1/events?follow=true HTTP/1.1", "Host: x", f"Authorization: Bearer {stack.token}"]
    asked = "".join(f"{line}\r\n" for line in (*lines, "")).encode()
    connections: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    try:
        with bounded(stack):
            for _ in range(FOLLOWERS):
                connections.append(await connected(stack))
                connections[-1][1].write(asked)
            async with asyncio.timeout(LIMIT_S):
                heads = [await reader.readline() for reader, _ in connections]
                await answers(client)  # while they hang on
    finally:
        for _, writer in connections:
            writer.close()
    got = Counter(head.split()[1] for head in heads)
    assert got[b"200"] <= FOLLOWERS_MAX <= got[b"200"] + got[b"503"]
    assert got.keys() <= {b"200", b"429", b"503"}  # 503: NATS, still busy with the jobs, does not answer
    await answers(client)
    assert [line async for line in client.events(tail=1)]


async def connected(stack: Stack) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """To the API."""
    return await asyncio.open_connection("127.0.0.1", stack.ports["admission"])


async def test_a_client_that_never_ends_its_request_is_disconnected(running: Running) -> None:
    stack, client = running
    beginnings = [
        b"",
        b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nX-",
        f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {stack.token}\r\n"
        "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{".encode(),
    ]
    lines = [await connected(stack) for _ in range(SILENT) for _ in beginnings]
    for (_, writer), begun in zip(lines, beginnings * SILENT, strict=True):
        writer.write(begun)
    await answers(client)
    async with asyncio.timeout(LIMIT_S):
        said = await asyncio.gather(*(reader.read() for reader, _ in lines), return_exceptions=True)
    for _, writer in lines:
        writer.close()
    late = [one for one in said if isinstance(one, bytes) and one.startswith(b"HTTP/1.1 408")]
    assert len(late) == SILENT
    assert all(b"30 s" in one for one in late)


async def test_a_service_with_few_file_descriptors_answers_again_once_they_are_free(running: Running) -> None:
    stack, client = running
    pid = pid_of(stack, "admission")
    before, most = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (64, most))
    try:
        with bounded(stack):
            lines = [await connected(stack) for _ in range(200)]
            await answers(client)  # they ask for nothing, and are closed for others
            for _, writer in lines:
                writer.close()
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (before, most))


async def answers(client: Client) -> None:
    """Return once the stack does, as busy as it may be."""
    async with asyncio.timeout(LIMIT_S):
        while not await reachable(client):
            await asyncio.sleep(0.2)


async def reachable(client: Client) -> bool:
    try:
        async with asyncio.timeout(10.0):
            await client.status()
    except Exception:  # noqa: BLE001 - whatever it is, it does not answer
        return False
    return True


BOMBS = {
    "aliases": ("application/yaml", BILLION_LAUGHS.encode(), {}),
    "nested JSON": ("application/json", b"[" * 200_000 + b"]" * 200_000, {}),
    "nested YAML": ("application/yaml", b"a: " + b"[" * 30_000, {}),
    "a gigabyte of zeros": ("application/json", b"", {"Content-Encoding": "gzip"}),
}


@pytest.mark.parametrize("bomb", BOMBS)
async def test_a_decompression_bomb_is_refused_and_costs_megabytes(running: Running, bomb: str) -> None:
    stack, client = running
    kind, body, more = BOMBS[bomb]
    with bounded(stack):
        async with (
            session_of(stack, **{"Content-Type": kind, **more}) as session,
            session.post("/v1/jobs", data=body or packed_gigabyte()) as response,
        ):
            status, words = await answered(response)
        assert (status in {400, 413, 422}, words != "") == (True, True), (status, words)
        await answers(client)


def packed_gigabyte() -> bytes:
    """Less than a megabyte, as gzip makes it; each block stands for itself and is packed but once."""
    zeros, blocks, check = bytes(16 * MIB), 64, 0
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    block = packer.compress(zeros) + packer.flush(zlib.Z_FULL_FLUSH)
    for _ in range(blocks):
        check = zlib.crc32(zeros, check)
    return b"".join([GZIP, block * blocks, packer.flush(), struct.pack("<II", check, blocks * len(zeros))])


async def test_an_agent_that_floods_the_bus_with_garbage_harms_no_other(running: Running) -> None:
    stack, client = running
    own = min(view.node.node_id for view in (await client.nodes()).nodes)
    account = str(account_of(stack.data, agent_of(own)))
    with bounded(stack):
        bus = await JetStreamBus.connect(
            Settings(nats_url=stack.nats.url, nats_credentials=account), "agent", 10.0
        )
        try:
            for number in range(5_000):
                await bus.send(Heartbeat(at=float("1e300"), node_id=own, life=f"x{number}", workers=()))
            for number in range(500):
                await bus.publish([checkpointed(node_id=own, samples_done=float(number))])
        finally:
            await bus.close()
        await until(client, lambda status: status.nodes.get("alive", 0) == NODES)


async def test_after_all_that_no_rule_was_broken(running: Running) -> None:
    _, client = running
    lines = [line async for line in client.events()]
    assert audit([line.fact() for line in lines], seqs=[line.seq for line in lines]) == []
