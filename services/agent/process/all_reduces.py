"""Times all-reduces on this node, or its part of those over several nodes, in `hopjob` processes."""

import asyncio
import itertools
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from schemas.calibration import AllReduceTimes
from schemas.questions import JoinAllReduce
from services.agent.process import launch
from services.agent.process.host import Host
from services.agent.process.kernel.cgroups import Group, Groups
from services.agent.process.kernel.spawning import ProcessSpec, start_process
from services.agent.process.ranks import child_rank

MODULE = f"{launch.PLUGIN}.measure.all_reduces"
LIMIT_S = 55.0
"""time within which all ranks must have finished"""
_NUMBERS = itertools.count(1)


class NotTimed(OSError):
    """All-reduces cannot be timed; the text says why."""


def check_interpreter(host: Host) -> str:
    """The interpreter of the last job here, which is taken to have torch. Raises NotTimed: no job has run."""
    found = host.interpreter()
    if not found:
        raise NotTimed(
            "no job has run here under the agent's account, so it is not known which interpreter has torch"
        )
    return found


async def time_all_reduces(host: Host, question: JoinAllReduce, gpu_indices: Sequence[int]) -> AllReduceTimes:
    """Run this node's ranks; returns the times if rank 0 is among them, else none. Raises OSError."""
    interpreter = check_interpreter(host)
    name = f"all-reduce-{next(_NUMBERS)}"
    folder = host.folders.run / name
    group = host.groups.of(name) if host.groups else None
    try:
        await _finished(partial(_make, folder, host.groups, name))
        starts = [
            ProcessSpec(
                command=(
                    interpreter,
                    "-m",
                    MODULE,
                    msgspec.json.encode(question.sizes).decode(),
                    f"{question.repeats}",
                ),
                environment=launch.inherited(os.environ) | variables,
                folder="/",
                log=folder / f"{variables['RANK']}.log",
                groups=group.enter if group else (),
            )
            for variables in _variables(host, question, gpu_indices)
        ]
        return await _run(starts)
    finally:
        await asyncio.to_thread(_remove, folder, group)


def _make(folder: Path, groups: Groups | None, name: str) -> None:
    folder.mkdir(exist_ok=True)
    if groups is not None:
        groups.make(name)


def _remove(folder: Path, group: Group | None) -> None:
    if group is not None:
        group.kill()
        group.remove()
    shutil.rmtree(folder, ignore_errors=True)


async def _run(starts: Sequence[ProcessSpec]) -> AllReduceTimes:
    """Raises OSError."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        await _finished(partial(_start, starts, processes))
        async with asyncio.timeout(LIMIT_S):
            ends = await asyncio.gather(*(child_rank(process).ended() for process in processes))
    except TimeoutError:
        raise NotTimed(f"the all-reduces took more than {LIMIT_S:g} s") from None
    finally:
        for process in processes:
            process.kill()
        await asyncio.to_thread(_reap, processes)
    for start, (code, _) in zip(starts, ends, strict=True):
        if code != 0:
            raise NotTimed(f"a rank of the all-reduces failed: {_last_line(start.log)}")
    first = next((start for start in starts if start.environment["RANK"] == "0"), None)
    seconds = msgspec.json.decode(_last_line(first.log), type=tuple[tuple[float, ...], ...]) if first else ()
    return AllReduceTimes(seconds=seconds)


def _start(starts: Sequence[ProcessSpec], processes: list[subprocess.Popen[bytes]]) -> None:
    for start in starts:
        processes.append(start_process(start))  # noqa: PERF401 - if a start fails, the caller still has the earlier ones


def _reap(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.wait()


async def _finished(work: Callable[[], None]) -> None:
    """Do the work in a thread, and await its end even if cancelled, so that what it made can be removed."""
    working = asyncio.create_task(asyncio.to_thread(work))
    try:
        await asyncio.shield(working)
    finally:
        await asyncio.wait({working})


def _variables(host: Host, question: JoinAllReduce, gpu_indices: Sequence[int]) -> list[dict[str, str]]:
    members = question.ring.members
    place = next(index for index, (node, _) in enumerate(members) if node.node_id == question.node_id)
    node, gpus = members[place]
    first = sum(count for _, count in members[:place])
    address, _, port = question.meeting.rpartition(":")
    return [
        {
            "RANK": str(first + local),
            "LOCAL_RANK": str(local),
            "WORLD_SIZE": str(question.ring.gpus),
            "MASTER_ADDR": address,
            "MASTER_PORT": port,
            "CUDA_VISIBLE_DEVICES": ",".join(host.devices(node, gpu_indices[:gpus]) or ()),
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(host.folders.plugin),
            **launch.interfaces(host.network_interface),
        }
        for local in range(gpus)
    ]


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    return lines[-1] if lines else "it said nothing"
