"""NATS kept running, on a folder that can be taken away: as a disk that is not mounted any more looks."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from hopyard.failures import Invalid
from hopyard.local import nats_supervision
from hopyard.local.nats_supervision import AWAY, BACK, FULL, GONE, THERE, NatsDisk, keep_nats
from hopyard.local.processes import Restarts
from shared.runtime.bus.accounts import NatsUser
from shared.runtime.process import nats_server
from shared.runtime.process.nats_server import NatsServer
from shared.runtime.process.nats_servers import NatsServers

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
        assert [line.partition(" (")[0] for line in stage.said] == [
            "nats-server ended; starting it again in 0.05 s",
            AWAY.partition(" (")[0],
            THERE,
        ]


MOUNTED_ON = pytest.mark.parametrize("mounted_on", [Path.mkdir, Path.touch], ids=["a folder", "a file"])
"""what is there in place of the disk"""


@MOUNTED_ON
async def test_a_server_that_ends_while_its_disk_is_gone_is_started_once_that_is_back(
    tmp_path: Path, mounted_on: Callable[[Path], None]
) -> None:
    """And not before: it would begin an empty store below the mount, or end the stack."""
    disk, elsewhere = tmp_path / "disk", tmp_path / "elsewhere"
    async with kept(disk) as stage:
        disk.rename(elsewhere)
        mounted_on(disk)
        await stage.until(stage.says(GONE))
        kill(stage.server)
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


class Room(NamedTuple):
    f_bavail: int
    f_frsize: int = 1


async def test_a_disk_that_comes_back_full_has_nats_start_anew_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that is stopped there does not come up."""
    said, free = list[str](), [nats_supervision.ROOM_BYTES]
    server = NatsServer(tmp_path / "nats")
    (store := server.folder / nats_supervision.STORE).mkdir(parents=True)
    monkeypatch.setattr(os, "statvfs", lambda _: Room(free[0]))
    disk = NatsDisk(NatsServers([server]))

    def look() -> tuple[bool, bool]:
        return disk.to_begin_anew(said.append), disk.unfit

    assert look() == (False, False)
    shutil.rmtree(store)
    assert look() == (False, True)
    store.mkdir()
    free[0] = nats_supervision.LEAST_BYTES - 1
    assert look() == (False, True)
    free[0] = nats_supervision.ROOM_BYTES
    assert look() == (True, False)
    assert look() == (False, False)
    expected = [words.format(server.folder, "No such file or directory") for words in (GONE, FULL, BACK)]
    assert said == expected


async def test_a_disk_that_goes_while_it_is_asked_counts_as_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(_: object) -> None:
        raise OSError(5, "Input/output error")

    server = NatsServer(tmp_path / "nats")
    (server.folder / nats_supervision.STORE).mkdir(parents=True)
    monkeypatch.setattr(os, "statvfs", lost)
    disk = NatsDisk(NatsServers([server]))
    assert (disk.to_begin_anew(lambda _: None), disk.unfit) == (False, True)


@MOUNTED_ON
async def test_a_server_that_does_not_start_again_since_the_disk_went_anew_does_not_end_the_stack(
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


async def test_one_of_several_that_ended_is_not_asked_for_its_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may come back without it, since the others hold all."""
    servers = [NatsServer(tmp_path / name) for name in "abc"]
    running = servers[:2]
    for server in running:
        (server.folder / nats_supervision.STORE).mkdir(parents=True)
    monkeypatch.setattr(NatsServer, "running", lambda server: server in running)
    disk, said = NatsDisk(NatsServers(servers)), list[str]()
    assert (disk.to_begin_anew(said.append), disk.unfit, said) == (False, False, [])
    running.clear()
    assert (disk.to_begin_anew(said.append), disk.unfit) == (False, True)
