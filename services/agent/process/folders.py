"""The folders of a node, of its workers and of a job's checkpoints."""

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
from services.agent.process.kernel.spawning import Account, own, reach
from services.agent.process.launch import PLUGIN

SOCKET_PATH_MAX = 100
"""bytes; the kernel's limit is 108"""
DISK_FULL_BYTES = 65_536
CLOSED, PASSED = 0o700, 0o711
"""modes of folders; jobs' accounts pass through the second, and see nothing"""


class RankFiles(msgspec.Struct, frozen=True):
    """The files of a rank."""

    folder: Path
    rank: int

    @property
    def log(self) -> Path:
        return self.folder / f"rank-{self.rank}.log"

    @property
    def position(self) -> Path:
        """The file that holds how far the log was read."""
        return self.folder / f"rank-{self.rank}.position"

    @property
    def environment(self) -> Path:
        """Environment file for the container engine; jobs' accounts cannot read it."""
        return self.folder / f"rank-{self.rank}.environment"

    @property
    def last(self) -> Path:
        """File for the rank's last message, in a folder where the job's account may write."""
        return self.folder / "last" / f"{self.rank}.json"


class Folders(msgspec.Struct, frozen=True):
    """`run`: of the node; `jobs`: shared by all nodes."""

    run: Path
    jobs: Path
    source: Path | None = None
    """folder of the plug-in that is copied; None: the installed one"""

    def turns(self, gpu: int) -> Path:
        """The file of a GPU's executor log."""
        return self.run / "turns" / f"gpu-{gpu}.jsonl"

    @property
    def socket(self) -> Path:
        """In a folder of its own, which containers are given: an agent that starts anew makes it anew.

        Sockets have short names: one in a deep folder stands among temporary files.
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
        """The file with the path of the interpreter that the last script under the agent's account used."""
        return self.run / "interpreter"

    @property
    def groups(self) -> str:
        """Name of the folder of this node's control groups, unlike that of any other node."""
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
        """Raises OSError."""
        for folder in (self.workers, self.socket.parent):
            folder.mkdir(parents=True, exist_ok=True)
        self.workers.chmod(PASSED if os.geteuid() == 0 else CLOSED)
        if self.socket.parent.lstat().st_uid != os.geteuid():
            raise PermissionError(f"{self.socket.parent} belongs to somebody else")

    def make_checkpoints(self, order: StartOrdered, account: Account | None) -> None:
        """As the account may make them: the way there is often another's to choose. Raises OSError."""
        folder = self.checkpoints(order)
        if account is None:
            folder.mkdir(parents=True, exist_ok=True)
            return
        try:
            reach(folder, account, make=True)
        except PermissionError:
            if order.spec.checkpoint_folder:
                raise
            self._give(self.jobs / order.job_id, account)
            reach(folder, account, make=True)

    def _give(self, folder: Path, account: Account) -> None:
        """A job's own folder, where the account itself may make none. Raises OSError."""
        for each in reversed([each for each in folder.parents if not each.exists()]):
            each.mkdir(exist_ok=True)
            each.chmod(PASSED)
        folder.mkdir(exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if os.fstat(descriptor).st_uid == os.geteuid():
                os.fchown(descriptor, account.uid, account.gid)
        finally:
            os.close(descriptor)

    def put_plugin(self) -> None:
        """A copy of the plug-in, alone in its folder: a job's interpreter finds nothing else of ours.

        Raises OSError.
        """
        source = self.source or _installed_plugin()
        if source is None:
            return
        new, old = self.run / "plugin.new", self.run / "plugin.old"
        for each in (new, old):
            shutil.rmtree(each, ignore_errors=True)
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source, new / PLUGIN, ignore=ignored)
        if self.plugin.exists():
            self.plugin.rename(old)
        new.rename(self.plugin)
        shutil.rmtree(old, ignore_errors=True)

    def full(self, order: StartOrdered) -> str:
        """A folder that has no space left; empty if there is none."""
        return next((str(each) for each in (self.run, self.checkpoints(order)) if _full(each)), "")


def make_worker(folder: Path, ranks: Iterable[int], account: Account | None) -> None:
    """The agent's own, but for the logs and the last words of the ranks, which are the job's account's.

    What the agent goes by or writes itself is not for the job to put something else in its place.
    Raises OSError.
    """
    last = folder / "last"
    last.mkdir(parents=True, exist_ok=True)
    folder.chmod(CLOSED if account is None else PASSED)
    last.chmod(CLOSED)
    own(last, account)
    for rank in ranks:
        log = RankFiles(folder, rank).log
        log.touch(0o600)
        own(log, account)


def _installed_plugin() -> Path | None:
    """The folder of the installed plug-in, found without importing it, since that would need torch."""
    spec = importlib.util.find_spec(PLUGIN)
    return Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None


def _full(folder: Path) -> bool:
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < DISK_FULL_BYTES
