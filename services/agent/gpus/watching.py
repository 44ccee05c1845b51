"""Reads the state of the machine's GPUs at intervals, and gives the core what follows from it.

The driver is asked in a thread: if a GPU is broken, it may take minutes to answer, or never answer.
"""

from pathlib import Path
from pwd import getpwuid

import structlog

from services.agent.gpus.health import Faults, broken, busy, seen_twice
from services.agent.gpus.nvml import GpuReading, NoNvml, Nvml, Xid
from services.agent.gpus.xids import fatal
from services.agent.tasks import GpusSeen
from shared.runtime.clock import Clock
from shared.runtime.offload.contract import Lane
from shared.runtime.service import Inbox

LOOK_EVERY_REAL_S = 2.0
ANSWER_LIMIT_REAL_S = 60.0
SILENT = "the driver does not answer"

log = structlog.get_logger()


class GpuWatch:
    """`uuids`: those of the node's GPUs, by index."""

    def __init__(
        self,
        uuids: tuple[str, ...],
        clock: Clock,
        lane: Lane,
        *,
        look_every_real_s: float = LOOK_EVERY_REAL_S,
        answer_limit_real_s: float = ANSWER_LIMIT_REAL_S,
    ) -> None:
        self._uuids = uuids
        self._clock = clock
        self._lane = lane
        self._look_every_real_s = look_every_real_s
        self._answer_limit_real_s = answer_limit_real_s
        self._nvml: Nvml | None = None
        self._unwell: Faults = {}
        """faults in the last reading, Xids left out"""
        self._broken: Faults = {}
        """GPUs found broken so far"""

    async def first(self) -> GpusSeen:
        """The state of the GPUs before the agent joins."""
        return await self._look()

    async def run(self, inbox: Inbox) -> None:
        """A task of the service."""
        while True:
            await self._clock.sleep(self._clock.cluster_s(self._look_every_real_s))
            inbox.put(await self._look())

    async def _look(self) -> GpusSeen:
        try:
            async with self._clock.within(self._answer_limit_real_s):
                readings, xids = await self._lane.do(self._read)
        except (TimeoutError, NoNvml):
            self._broken = dict.fromkeys(range(len(self._uuids)), SILENT) | self._broken
            return GpusSeen(busy={}, broken=dict(self._broken))
        return self._concluded(readings, xids)

    def _concluded(self, readings: tuple[GpuReading, ...], xids: tuple[Xid, ...]) -> GpusSeen:
        """What follows from a reading: a fault must be in two readings in a row, an Xid counts at once."""
        for xid in xids:
            log.warning("error of a GPU", gpu=xid.uuid, xid=xid.code, fatal=bool(fatal(xid.code)))
        unwell = broken(readings, (), self._uuids)
        self._broken = broken((), xids, self._uuids) | seen_twice(unwell, self._unwell) | self._broken
        self._unwell = unwell
        return GpusSeen(busy=busy(readings, who), broken=dict(self._broken))

    def _read(self) -> tuple[tuple[GpuReading, ...], tuple[Xid, ...]]:
        if self._nvml is None:
            self._nvml = Nvml()
            self._nvml.watch_xids(self._uuids)
        return tuple(map(self._nvml.read, self._uuids)), self._nvml.xids()


def who(pid: int) -> str:
    """Name and user of a process, in brackets; empty: /proc does not show it."""
    folder = Path(f"/proc/{pid}")
    try:
        name = (folder / "comm").read_bytes().decode(errors="replace").strip()
        user = _user(folder.stat().st_uid)
    except OSError:
        return ""
    return f" ({''.join(filter(str.isprintable, name))} of {user})"


def _user(uid: int) -> str:
    try:
        return getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
