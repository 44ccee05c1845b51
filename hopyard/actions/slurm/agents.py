"""slurm up, status and down: submit, list and cancel the Slurm jobs of a stack's agents."""

import os
import re
import shutil
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import yaml

from hopyard.actions.slurm.queue import SlurmJob, cancel, configuration, queued, submitted
from hopyard.actions.slurm.script import NOTICE, SCRIPT, SETTINGS, WANTED, Allocation, batch_script, options
from hopyard.failures import Failure, Invalid
from hopyard.local.processes import Say
from schemas.base import Message
from schemas.jobs import JobSpec
from schemas.settings import Settings
from shared.runtime.addresses import loopback, servers_of
from shared.runtime.process.nats_server import EVERYWHERE
from shared.runtime.settings import in_environment, in_file
from shared.runtime.state_folder import state_folder

GRACE_S: float = next(field.default for field in msgspec.structs.fields(JobSpec) if field.name == "grace_s")
"""what a job gets to save and end, if it says nothing"""
GONE_LIMIT_S = 60.0
"""beyond KillWait, for jobs that were asked to end"""
LOOK_EVERY_S = 0.5
NOT_FOR_AGENTS = ("api_url", "api_token", "web_host", "web_port", "node", "node_until", "store")
"""settings that an agent elsewhere does not need, or has its own values of"""
OF_AN_AGENT = {"nodes": "this-machine", "runner": "process"}
"""unless the settings in force say otherwise"""
_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<first>\d+)(?::(?P<second>\d+))?(?::(?P<third>\d+))?")
_LIMITLESS = frozenset({"", "UNLIMITED", "INFINITE", "-1"})


class AgentsUp(Message, frozen=True, kw_only=True):
    """The result of `up`."""

    folder: str
    submitted: tuple[str, ...]
    """ids of the jobs"""
    there: int
    """agents that had their job before, running or waiting"""


def settings_of_agents(join: str | None) -> dict[str, str | int | float | bool]:
    """The settings in force here, with the address of the stack. Raises Invalid."""
    given = _given()
    address = str(join or given.get("nats_url", ""))
    if not address:
        raise Invalid("no stack is named: give --join nats://HOST:PORT, or set nats_url")
    try:
        hosts = [urlsplit(server).hostname or "" for server in servers_of(address)]
    except ValueError as error:
        raise Invalid(str(error)) from None
    if not join and all(loopback(host) or host in EVERYWHERE for host in hosts):
        raise Invalid(
            f"{address} is this machine's own address: no other node can reach the stack there; "
            "give --join nats://HOST:PORT with one that they can"
        )
    kept = {name: value for name, value in given.items() if name not in NOT_FOR_AGENTS}
    return OF_AN_AGENT | kept | {"nats_url": address}


def script_of(allocation: Allocation, folder: Path) -> str:
    """Raises Invalid where the time is too short for an agent to be of use."""
    settings = msgspec.convert(_given(), Settings)
    leave_s = settings.leave_before_end_s / settings.speed
    least_s, limit_s = 2 * NOTICE * leave_s, limit_of(allocation.time)
    if limit_s is not None and limit_s < least_s:
        raise Invalid(
            f"--time {allocation.time}: an agent leaves {leave_s:g} s before the end "
            f"(the setting leave_before_end_s), so {least_s / 60:g} minutes are the least that is of use"
        )
    commands = Path(shutil.which("sbatch") or "/usr/bin/sbatch").absolute().parent
    return batch_script(allocation, folder, python=sys.executable, leave_s=leave_s, commands=str(commands))


def bring(folder: Path, *, nodes: int, script: str, join: str | None, say: Say) -> AgentsUp:
    """Have `nodes` agents running or waiting. Raises Invalid, Unreachable, SlurmRefused."""
    settings = settings_of_agents(join)
    for warning in warnings(configuration()):
        say(warning)
    if settings["runner"] == OF_AN_AGENT["runner"] and "jobs_folder" not in settings:
        say("jobs_folder is not set here: agents take the stack's, and all nodes must share it")
    there = [job for job in jobs_of(folder) if not job.follows]
    _write(folder, settings, script)
    fresh = [submitted(folder / SCRIPT, options(script)) for _ in range(nodes - len(there))]
    return AgentsUp(folder=str(folder), submitted=tuple(fresh), there=len(there))


def jobs_of(folder: Path) -> list[SlurmJob]:
    """The agents' jobs, which are known by their script: a name may be that of other jobs too."""
    return queued(folder / SCRIPT)


def take_down(folder: Path, say: Say) -> int:
    """Cancel all jobs and wait until they are gone; how many there were. Raises Failure where some stay."""
    (folder / WANTED).unlink(missing_ok=True)  # first: no job submits a successor any more
    jobs = jobs_of(folder)
    ids = {job.job_id for job in jobs}
    limit_s = _kill_wait_s(configuration()) + GONE_LIMIT_S
    until = time.monotonic() + limit_s
    asked: set[str] = set()
    while jobs:
        cancel(job.job_id for job in jobs if job.job_id not in asked)
        asked |= {job.job_id for job in jobs}
        if time.monotonic() > until:
            left = ", ".join(job.job_id for job in jobs)
            raise Failure(f"still there after {limit_s:g} s: {left}; `hopyard slurm down` asks again")
        time.sleep(LOOK_EVERY_S)
        jobs = jobs_of(folder)
        ids |= {job.job_id for job in jobs}
    for file in (SETTINGS, SCRIPT):
        (folder / file).unlink(missing_ok=True)
    if ids:
        say(f"logs stay in {folder}")
    return len(ids)


def warnings(configured: dict[str, str]) -> list[str]:
    """What in a Slurm cluster's configuration costs work, or leaves processes behind."""
    found = []
    tracked = configured.get("ProctrackType", "")
    if tracked and tracked != "proctrack/cgroup":
        found.append(
            f"Slurm has ProctrackType={tracked}: processes that leave their session outlive an allocation; "
            "proctrack/cgroup ends them"
        )
    kill_wait_s = _kill_wait_s(configured)
    if kill_wait_s < GRACE_S:
        found.append(
            f"Slurm has KillWait={kill_wait_s:g}: where an agent is cancelled or preempted its jobs have so "
            f"many seconds to save, {GRACE_S:g} by their own default; what they did since their last "
            "checkpoint may be lost"
        )
    return found


def limit_of(text: str) -> float | None:
    """Seconds of a time as sbatch reads it; None: no limit, as 0, or none given. Raises Invalid."""
    if text.upper() in _LIMITLESS:
        return None
    found = _TIME.fullmatch(text)
    if found is None:
        raise Invalid(
            f"--time {text}: a time is MINUTES, HOURS:MINUTES:SECONDS or DAYS-HOURS:MINUTES:SECONDS"
        )
    parts = [int(part) for part in found.group("first", "second", "third") if part is not None]
    hours_first = bool(found["days"]) or len(parts) == 3  # noqa: PLR2004
    hours, minutes, seconds = (*parts, 0, 0)[:3] if hours_first else (0, *parts, 0)[:3]
    return float(((int(found["days"] or 0) * 24 + hours) * 60 + minutes) * 60 + seconds) or None


def folder_of(name: str) -> Path:
    """A folder in the home folder, which the nodes of a cluster share. Raises Invalid without a home."""
    try:
        return state_folder() / "hopyard" / "slurm" / name
    except FileNotFoundError as error:
        raise Invalid(f"{error}, and --folder another for the agents") from None


def _write(folder: Path, settings: dict[str, str | int | float | bool], script: str) -> None:
    """Write the agents' files for their owner alone: settings may hold a token. Raises Invalid."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name, text in ((SETTINGS, yaml.safe_dump(settings)), (SCRIPT, script), (WANTED, "")):
            draft = folder / f".{name}"
            draft.unlink(missing_ok=True)
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(text)
            draft.replace(folder / name)
    except OSError as error:
        raise Invalid(f"{error.filename}: {error.strerror}") from None


def _given() -> dict[str, str | int | float | bool]:
    """Settings that the environment or a file sets. Raises Invalid."""
    try:
        return in_file(os.environ) | in_environment(os.environ)
    except ValueError as error:
        raise Invalid(str(error)) from None


def _kill_wait_s(configured: dict[str, str]) -> float:
    """Slurm's `KillWait`, a value like `30 sec`, in seconds."""
    number = configured.get("KillWait", "").partition(" ")[0]
    return float(number) if number.isdigit() else 30.0
