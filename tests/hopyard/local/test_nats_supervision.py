"""NATS kept running, on a folder that can be taken away: as a disk that is not mounted any more looks."""

import asyncio
import os
import shutil
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from hopyard.failures import Died, Invalid, NotReady
from hopyard.local import nats_supervision
from hopyard.local.nats_supervision import (
    AWAY,
    BACK,
    ENDED,
    FULL,
    GONE,
    NOTHING_NEW,
    OTHERS,
    SLOW,
    THERE,
    NatsDisk,
    Outage,
    keep_nats,
    start_nats,
)
from hopyard.local.processes import Restarts
from shared.runtime.bus.accounts import NatsUser
from shared.runtime.process import nats_server
from shared.runtime.process.nats_server import NatsServer, Recovering
from shared.runtime.process.nats_servers import NatsServers, nats_servers

LIMIT_S = 30.0
RESTARTS = Restarts(most=5)


class Kept(NamedTuple):
    server: NatsServer
    keeping: "asyncio.Task[None]"
    said: list[str]

    async def until(self, fine: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not fine():
                assert not self.keeping.done(), "it has given up"
                await asyncio.sleep(0.02)

    def says(self, words: str) -> Callable[[], bool]:
        return lambda: any(words.partition("{}")[0] in line for line in self.said)


@asynccontextmanager
async def kept(disk: Path) -> AsyncIterator[Kept]:
    """The accounts that it lets in are on the same disk."""
    (folder := disk / "nats").mkdir(parents=True)
    (disk / "accounts").touch()

    def accounts() -> list[NatsUser]:
        if not (disk / "accounts").exists():
            raise Invalid("no accounts")
        return []

    server, said = NatsServer(folder, accounts=accounts), list[str]()
    nats = NatsServers([server])
    await nats.start()
    keeping = asyncio.create_task(keep_nats(nats, RESTARTS, said.append))
    try:
        yield Kept(server, keeping, said)
        assert not keeping.done()
    finally:
        keeping.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.wait([keeping])
        await nats.stop()


def kill(server: NatsServer) -> None:
    assert server.pid is not None
    os.kill(server.pid, 9)


async def test_a_server_that_cannot_start_is_tried_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More often than other programs are started again, and each of both is said once."""
    (no_server := tmp_path / "nats-server").write_text("#!/bin/sh\nexit 1\n")
    no_server.chmod(0o755)
    tries: list[None] = []

    def executable() -> str:
        tries.append(None)
        return str(no_server)

    monkeypatch.setattr(nats_supervision, "LONGEST_S", 0.05)
    async with kept(tmp_path / "disk") as stage:
        with monkeypatch.context() as patch:
            patch.setattr(nats_server, "_executable", executable)
            kill(stage.server)
            await stage.until(lambda: len(tries) > RESTARTS.most + 1)
        await stage.until(lambda: stage.server.running() and THERE in stage.said)
        reason = f"nats-server did not start on {stage.server.url}: it wrote no log"
        assert stage.said == [
            ENDED.format("nats-server", 0.05),
            AWAY.format("nats-server", reason, NOTHING_NEW),
            THERE,
        ]


def outage(servers: int, running: int) -> tuple[Outage, list[str]]:
    """An outage of `servers` servers of which the first `running` run."""
    each = [NatsServer(Path(f"nats-{number}")) for number in range(servers)]
    for server in each[:running]:
        server.running = lambda: True  # type: ignore[method-assign]
    said: list[str] = []
    return Outage(NatsServers(each), said.append), said


def test_each_reason_for_an_outage_of_nats_is_printed_once() -> None:
    """A second one is news, such as a full disk after a corrupt store; the time of a log line is none."""
    one, said = outage(servers=1, running=0)
    first, again, other = (
        RuntimeError(f"the log:\n[{pid}] 2026/01/01 00:00:{pid} [FTL] {words}")
        for pid, words in ((17, "no store"), (18, "no store"), (19, "no port"))
    )
    for error in (first, again, other, again, Recovering("...")):
        one.say_of({1: error})
    one.say_of({})
    one.say_of({})
    one.say_of({1: again})
    assert said == [
        AWAY.format("nats-server", "no store", NOTHING_NEW),
        AWAY.format("nats-server", "no port", NOTHING_NEW),
        SLOW.format("nats-server", f"{NOTHING_NEW} until then"),
        THERE,
        AWAY.format("nats-server", "no store", NOTHING_NEW),
    ]


def test_servers_that_are_down_are_named_and_the_majority_goes_on() -> None:
    several, said = outage(servers=3, running=2)
    several.say_of({3: RuntimeError("no port")})
    several.say_of({2: RuntimeError("no port"), 3: RuntimeError("no port")})
    assert said == [
        AWAY.format("nats-server 3 of 3", "no port", OTHERS),
        AWAY.format("nats-server 2, 3 of 3", "no port", NOTHING_NEW),
    ]


def test_only_a_reported_outage_is_reported_as_over() -> None:
    one, said = outage(servers=1, running=1)
    one.say_of({})
    assert said == []


async def test_without_restarts_a_server_that_ends_ends_the_stack(tmp_path: Path) -> None:
    """As a benchmark's, whose figures would have the outage in them."""
    server = NatsServer(tmp_path / "nats")
    nats = NatsServers([server])
    await start_nats(nats, print)
    keeping = asyncio.create_task(keep_nats(nats, Restarts(most=0), print))
    kill(server)
    async with asyncio.timeout(LIMIT_S):
        with pytest.raises(Died, match="nats-server ended"):
            await keeping


async def test_a_server_that_does_not_start_is_reported_by_its_last_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = NatsServer(tmp_path / "nats", port=taken.getsockname()[1])
        with pytest.raises(NotReady, match=r"^nats-server does not start: Error listening on port: [^\n]+$"):
            await start_nats(NatsServers([server]), print)


SLOWLY = '#!/bin/sh\nsleep {}\nexec {} "$@"\n'


async def test_a_server_that_recovers_its_store_for_long_is_left_to_do_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a server was killed after ten seconds, and began again, for ever."""
    (slow := tmp_path / "nats-server").write_text(SLOWLY.format(3, nats_server._executable()))
    slow.chmod(0o755)
    monkeypatch.setattr(nats_supervision, "START_TIMEOUT_S", 0.3)
    async with kept(tmp_path / "disk") as stage:
        monkeypatch.setattr(nats_server, "_executable", lambda: str(slow))
        kill(stage.server)
        await stage.until(lambda: len(stage.said) > 1)
        first = stage.server.pid
        await stage.until(lambda: THERE in stage.said)
        assert stage.server.pid == first
        recovers = SLOW.format("nats-server", f"{NOTHING_NEW} until then")
        assert stage.said == [ENDED.format("nats-server", 0.5), recovers, THERE]


async def test_a_stack_waits_for_a_server_that_recovers_its_store_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (slow := tmp_path / "nats-server").write_text(SLOWLY.format(2, nats_server._executable()))
    slow.chmod(0o755)
    monkeypatch.setattr(nats_supervision, "START_TIMEOUT_S", 0.3)
    monkeypatch.setattr(nats_server, "_executable", lambda: str(slow))
    said: list[str] = []
    nats = NatsServers([NatsServer(tmp_path / "nats")])
    try:
        await start_nats(nats, said.append)
        assert nats.ready()
    finally:
        await nats.stop()
    assert said == [SLOW.format("nats-server", "the stack waits for it")]


MOUNTED_ON = pytest.mark.parametrize("mounted_on", [Path.mkdir, Path.touch], ids=["a folder", "a file"])
"""what is there in place of the disk"""


@MOUNTED_ON
async def test_a_server_without_its_disk_is_killed_and_started_once_the_disk_is_back(
    tmp_path: Path, mounted_on: Callable[[Path], None]
) -> None:
    """And not before: it would begin an empty store below the mount, or end the stack."""
    disk, elsewhere = tmp_path / "disk", tmp_path / "elsewhere"
    async with kept(disk) as stage:
        disk.rename(elsewhere)
        mounted_on(disk)
        await stage.until(stage.says(GONE))
        assert stage.server.pid is None
        await asyncio.wait([stage.keeping], timeout=4 * nats_supervision.LOOK_EVERY_S)
        assert stage.server.pid is None
        if disk.is_dir():
            assert list(disk.iterdir()) == []
            disk.rmdir()
        else:
            disk.unlink()
        elsewhere.rename(disk)
        await stage.until(lambda: stage.server.pid is not None)
        assert stage.said[1:] == [BACK]


async def test_a_disk_lost_after_the_server_ended_is_waited_for(tmp_path: Path) -> None:
    """As where somebody ends all that uses the disk, and then unmounts it."""
    disk, elsewhere = tmp_path / "disk", tmp_path / "elsewhere"
    async with kept(disk) as stage:
        kill(stage.server)
        await stage.until(lambda: bool(stage.said))
        disk.rename(elsewhere)
        disk.mkdir()
        await stage.until(lambda: len(stage.said) > 1)
        assert stage.said[1:] == [GONE.format(disk / "nats", "No such file or directory", NOTHING_NEW)]
        assert list(disk.iterdir()) == []
        disk.rmdir()
        elsewhere.rename(disk)
        await stage.until(stage.server.ready)


class Room(NamedTuple):
    f_bavail: int
    f_frsize: int = 1


async def test_a_disk_that_comes_back_full_has_nats_start_again_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that is stopped there does not come up."""
    said, free = list[str](), [nats_supervision.ROOM_BYTES]
    server = NatsServer(tmp_path / "nats")
    (store := server.folder / nats_supervision.STORE).mkdir(parents=True)
    monkeypatch.setattr(os, "statvfs", lambda _: Room(free[0]))
    disk = NatsDisk(NatsServers([server]))

    def look() -> tuple[bool, bool]:
        return disk.to_restart(said.append), disk.unfit

    assert look() == (False, False)
    shutil.rmtree(store)
    assert look() == (False, True)
    store.mkdir()
    free[0] = nats_supervision.LEAST_BYTES - 1
    assert look() == (False, True)
    free[0] = nats_supervision.ROOM_BYTES
    assert look() == (True, False)
    assert look() == (False, False)
    assert said == [
        GONE.format(server.folder, "No such file or directory", NOTHING_NEW),
        FULL.format(server.folder, NOTHING_NEW),
        BACK,
    ]


async def test_a_disk_lost_during_the_check_counts_as_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(_: object) -> None:
        raise OSError(5, "Input/output error")

    server = NatsServer(tmp_path / "nats")
    (server.folder / nats_supervision.STORE).mkdir(parents=True)
    monkeypatch.setattr(os, "statvfs", lost)
    disk = NatsDisk(NatsServers([server]))
    assert (disk.to_restart(lambda _: None), disk.unfit) == (False, True)


@MOUNTED_ON
async def test_a_server_that_does_not_start_again_since_the_disk_went_again_does_not_end_the_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mounted_on: Callable[[Path], None]
) -> None:
    disk, elsewhere = tmp_path / "disk", tmp_path / "elsewhere"
    stop = NatsServers.stop

    async def stopped_and_gone(nats: NatsServers) -> None:
        await stop(nats)
        monkeypatch.undo()
        disk.rename(elsewhere)
        mounted_on(disk)

    async with kept(disk) as stage:
        disk.rename(elsewhere)
        await stage.until(stage.says(GONE))
        monkeypatch.setattr(NatsServers, "stop", stopped_and_gone)
        elsewhere.rename(disk)
        await stage.until(lambda: len(stage.said) == 3)
        shutil.rmtree(disk) if disk.is_dir() else disk.unlink()
        elsewhere.rename(disk)
        await stage.until(lambda: len(stage.said) == 4 and stage.server.pid is not None)
        assert [line.partition(" ")[0] for line in stage.said] == ["the", "that", "the", "that"]


class Three(NamedTuple):
    """Servers of a cluster, each with a store; no processes."""

    servers: list[NatsServer]
    running: list[NatsServer]
    disk: NatsDisk
    said: list[str]

    def look(self) -> tuple[bool, bool]:
        return self.disk.to_restart(self.said.append), self.disk.unfit


@pytest.fixture
def three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Three:
    servers = [NatsServer(tmp_path / name) for name in "abc"]
    running = list(servers)

    def kill(server: NatsServer) -> None:
        if server in running:
            running.remove(server)

    monkeypatch.setattr(NatsServer, "kill", kill)
    monkeypatch.setattr(NatsServer, "running", lambda server: server in running)
    for server in servers:
        (server.folder / nats_supervision.STORE).mkdir(parents=True)
    return Three(servers, running, NatsDisk(NatsServers(servers)), [])


def test_the_disk_of_a_server_of_three_that_ended_is_not_checked(three: Three) -> None:
    """A server may come back without its disk, since the others hold all."""
    three.running.pop()
    shutil.rmtree(three.servers[2].folder)
    assert (three.look(), three.said) == ((False, False), [])


def test_one_server_of_three_without_its_disk_is_killed_and_may_come_back_without_it(three: Three) -> None:
    shutil.rmtree(three.servers[1].folder)
    assert three.look() == (False, False)
    assert three.servers[1] not in three.running
    assert three.look() == (False, False)
    assert three.said == [GONE.format(three.servers[1].folder, "No such file or directory", OTHERS)]


def test_two_servers_of_three_without_their_disks_are_not_started_before_one_is_back(three: Three) -> None:
    """Most of the cluster, they would agree on empty stores."""
    one, two, last = three.servers
    for server in (two, last):
        shutil.rmtree(server.folder)
    for _ in range(3):
        assert three.look() == (False, True)
    assert three.running == [one]
    (two.folder / nats_supervision.STORE).mkdir(parents=True)
    assert three.look() == three.look() == (False, False)
    (last.folder / nats_supervision.STORE).mkdir(parents=True)
    three.running[:] = three.servers
    assert three.look() == (False, False), "none of those that run had lost its disk"
    folders = f"{two.folder}, {last.folder}"
    assert three.said == [GONE.format(folders, "No such file or directory", NOTHING_NEW)]


def test_the_last_of_three_that_runs_waits_with_those_that_lost_their_disks_before(three: Three) -> None:
    three.running.pop()
    for server in three.servers[1:]:
        shutil.rmtree(server.folder)
    assert three.look() == three.look() == (False, True)
    three.running.clear()
    assert three.look() == (False, True)


async def test_two_servers_of_three_start_no_store_in_place_of_lost_disks(tmp_path: Path) -> None:
    """Two empty servers made a majority that knew no stream."""
    nats = nats_servers(tmp_path / "nats", 3, lambda folder, _, peers: NatsServer(folder, peers=peers))
    said: list[str] = []
    await start_nats(nats, said.append)
    keeping = asyncio.create_task(keep_nats(nats, RESTARTS, said.append))
    lost = {server.folder: server.folder.with_suffix(".away") for server in nats.each[1:]}
    try:
        for folder, away in lost.items():
            folder.rename(away)
        async with asyncio.timeout(LIMIT_S):
            while nats.ended() != [2, 3]:
                await asyncio.sleep(0.02)
        await asyncio.wait([keeping], timeout=4 * nats_supervision.LOOK_EVERY_S)
        assert (nats.ended(), [folder.exists() for folder in lost]) == ([2, 3], [False, False])
        for folder, away in lost.items():
            away.rename(folder)
        async with asyncio.timeout(LIMIT_S):
            while not nats.ready():
                await asyncio.sleep(0.02)
        assert not keeping.done()
    finally:
        keeping.cancel()
        await asyncio.wait([keeping])
        await nats.stop()
