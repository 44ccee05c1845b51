"""Paths and permissions of an agent's folder, of its workers' folders and of checkpoint folders."""

import hashlib
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

import msgspec

from schemas.events import StartOrdered
from schemas.ids import PlacementId
from services.agent.process.kernel.spawning import Account, give_to, reach
from services.agent.process.launch import PLUGIN

SOCKET_PATH_MAX = 100
"""bytes; the kernel's limit is 108"""
DISK_FULL_BYTES = 65_536
"""free space below which a disk counts as full"""
PRIVATE, PASSABLE = 0o700, 0o711
"""modes of folders; PASSABLE lets jobs' accounts reach what is inside, but not list it"""


class RankFiles(msgspec.Struct, frozen=True):
    """The files of a rank."""

    folder: Path
    rank: int

    @property
    def log(self) -> Path:
        return self.folder / f"rank-{self.rank}.log"

    @property
    def position(self) -> Path:
        """The file with the position in the log up to which the agent has read."""
        return self.folder / f"rank-{self.rank}.position"

    @property
    def environment(self) -> Path:
        """Environment file for the container engine; jobs' accounts cannot read it."""
        return self.folder / f"rank-{self.rank}.environment"

    @property
    def last(self) -> Path:
        """The file for the rank's last message; the job's account may write into its folder."""
        return self.folder / "last" / f"{self.rank}.json"


class Folders(msgspec.Struct, frozen=True):
    """`run`: the agent's own folder; `jobs`: folder for checkpoints that all nodes share."""

    run: Path
    jobs: Path
    source: Path | None = None
    """folder of the plug-in that is copied; None: the installed one"""

    def turns(self, gpu: int) -> Path:
        """The log of a GPU's executor."""
        return self.run / "turns" / f"gpu-{gpu}.jsonl"

    @property
    def socket(self) -> Path:
        """The agent's socket, in a folder of its own, since containers mount that folder.

        Mounting the socket itself would not do: an agent that starts again makes another. A path that is too
        long for a socket is replaced by one below the folder for temporary files.
        """
        inside = self.run / "socket" / "agent.sock"
        if len(os.fsencode(inside)) <= SOCKET_PATH_MAX:
            return inside
        return Path(tempfile.gettempdir()) / self.groups / "agent.sock"

    @property
    def lock(self) -> Path:
        return self.run / "lock"

    @property
    def interpreter(self) -> Path:
        """A file with the interpreter of the last script that ran under the agent's account."""
        return self.run / "interpreter"

    @property
    def groups(self) -> str:
        """Name of the folder of this agent's control groups, unique among the agents of a machine."""
        return f"hopyard-{hashlib.blake2b(bytes(self.run), digest_size=6).hexdigest()}"

    @property
    def workers(self) -> Path:
        return self.run / "workers"

    @property
    def plugin(self) -> Path:
        return self.run / "plugin"

    def worker(self, placement_id: PlacementId) -> Path:
        return self.workers / placement_id

    def checkpoints(self, order: StartOrdered) -> Path:
        return Path(order.spec.checkpoint_folder or self.jobs / order.job_id / "checkpoints")

    def make(self) -> None:
        """Make the folders of workers and of the socket. Raises OSError."""
        for folder in (self.workers, self.socket.parent):
            folder.mkdir(parents=True, exist_ok=True)
        self.workers.chmod(PASSABLE if os.geteuid() == 0 else PRIVATE)
        if self.socket.parent.lstat().st_uid != os.geteuid():
            raise PermissionError(f"{self.socket.parent} belongs to another user")

    def make_checkpoints(self, order: StartOrdered, account: Account | None) -> None:
        """Make the checkpoint folder with the rights of the account. Raises OSError.

        A user chooses its path, so with the agent's rights a job could have a folder made anywhere.
        """
        folder = self.checkpoints(order)
        if account is None:
            folder.mkdir(parents=True, exist_ok=True)
            return
        try:
            reach(folder, account, make=True)
        except PermissionError:
            if order.spec.checkpoint_folder:
                raise
            self._make_owned(self.jobs / order.job_id, account)
            reach(folder, account, make=True)

    def _make_owned(self, folder: Path, account: Account) -> None:
        """Make a job's folder below `jobs`, and give it to the account, which may make none there.

        Raises OSError.
        """
        for each in reversed([each for each in folder.parents if not each.exists()]):
            each.mkdir(exist_ok=True)
            each.chmod(PASSABLE)
        folder.mkdir(exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if os.fstat(descriptor).st_uid == os.geteuid():
                os.fchown(descriptor, account.uid, account.gid)
        finally:
            os.close(descriptor)

    def gone(self) -> str:
        """What somebody has removed of that which `run` had when the agent began; empty: nothing."""
        wanted = [self.socket, *([self.plugin] if self.source or _installed_plugin() else [])]
        return next((str(each) for each in wanted if not each.exists()), "")

    def put_plugin(self) -> None:
        """Copy the plug-in into a folder of its own, where a job's interpreter finds no other code of ours.

        Raises OSError.
        """
        source = self.source or _installed_plugin()
        if source is None:
            return
        new, old = self.run / "plugin.new", self.run / "plugin.old"
        for each in (new, old):
            shutil.rmtree(each, ignore_errors=True)
        ignored = shutil.ignore_patterns("__pycache__")
        try:
            shutil.copytree(source, new / PLUGIN, ignore=ignored)
        except shutil.Error as error:  # it lists every file
            _, _, why = error.args[0][0]
            raise OSError(why) from None
        if self.plugin.exists():
            self.plugin.rename(old)
        new.rename(self.plugin)
        shutil.rmtree(old, ignore_errors=True)

    def full(self, order: StartOrdered) -> str:
        """The first of the agent's and the checkpoint folder whose disk is full; empty: none."""
        return next((str(each) for each in (self.run, self.checkpoints(order)) if is_full(each)), "")


def make_worker(folder: Path, ranks: Iterable[int], account: Account | None) -> None:
    """Make a worker's folder. Raises OSError.

    The agent owns it, so the job cannot replace files that the agent reads or writes. Only the logs and the
    folder of last messages belong to the job's account.
    """
    last = folder / "last"
    last.mkdir(parents=True, exist_ok=True)
    folder.chmod(PRIVATE if account is None else PASSABLE)
    last.chmod(PRIVATE)
    give_to(last, account)
    for rank in ranks:
        log = RankFiles(folder, rank).log
        log.touch(0o600)
        give_to(log, account)


def _installed_plugin() -> Path | None:
    """The folder of the installed plug-in; found without an import, which would need torch.

    None: not installed.
    """
    spec = importlib.util.find_spec(PLUGIN)
    return Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None


def is_full(folder: Path) -> bool:
    """Whether its disk has no space left, or nearly none."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < DISK_FULL_BYTES
