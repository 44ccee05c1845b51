"""Slurm's commands, and their refusals in one sentence each."""

import os
import re
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from hopyard.actions.slurm.script import UNFIT
from hopyard.failures import Failure, Unreachable
from schemas.base import Message

LIMIT_S = 60.0
FIELDS = "%i|%T|%N|%e|%r|%o"
UNKNOWN = frozenset({"", "N/A", "NONE", "None", "(null)"})
_UNHEARD = ("HOPYARD_", "SQUEUE_", "SCANCEL_", "SCONTROL_")
"""beginnings of variables: hopyard's tokens, and what would have Slurm's commands pass over jobs"""
_UNANSWERED = re.compile(
    r"unable to contact|connect(ion)? (failure|refused|timed out)|not responding", re.IGNORECASE
)
_SPOKEN_BY = re.compile(r"^\w+: (error: |fatal: )?(Batch job submission failed: )?")


class SlurmRefused(Failure):
    """Slurm refused the request."""


class SlurmAway(Unreachable):
    """Slurm's commands are not installed here, or its controller does not answer."""


class SlurmJob(Message, frozen=True, kw_only=True):
    """An allocation of the queue, waiting or there."""

    job_id: str
    state: str
    node: str = ""
    """nodes on which it runs"""
    until: float | None = None
    """Unix time of its end"""
    reason: str = ""
    """Slurm's reason why it waits"""

    @property
    def follows(self) -> bool:
        """Whether it is a successor that waits for the end of the one before."""
        return self.state == "PENDING" and self.reason == "Dependency"


def submitted(script: Path, options: Sequence[str]) -> str:
    """The job's id."""
    return _said("sbatch", "--parsable", *options, str(script)).strip().partition(";")[0]


def queued(script: Path) -> list[SlurmJob]:
    """This user's jobs that were submitted with the script, those that run before those that wait."""
    lines = _said(
        *("squeue", "--noheader", f"--user={os.geteuid()}", f"--format={FIELDS}"),
        environ={"SLURM_TIME_FORMAT": "%s"},
    ).splitlines()
    cut = (line.split("|", FIELDS.count("|")) for line in lines)
    jobs = [_job(*known) for *known, command in cut if _same(command, script)]
    return sorted(jobs, key=lambda job: (job.state == "PENDING", len(job.job_id), job.job_id))


def cancel(job_ids: Iterable[str]) -> None:
    """Cancel jobs: running ones get SIGTERM, and SIGKILL after KillWait. Those that are gone are ignored."""
    ids = list(job_ids)
    if ids:
        _said("scancel", "--quiet", *ids)


def configuration() -> dict[str, str]:
    """A value of `scontrol show config`."""
    pairs = (line.partition("=") for line in _said("scontrol", "show", "config").splitlines())
    return {name.strip(): value.strip() for name, equals, value in pairs if equals}


def _same(command: str, script: Path) -> bool:
    """Whether a job's command is the script, be it by way of other links; a program has no folder."""
    named = command.startswith("/") and command.endswith(f"/{script.name}")
    return named and os.path.realpath(command) == os.path.realpath(script)


def _job(job_id: str, state: str, node: str, until: str, reason: str) -> SlurmJob:
    return SlurmJob(
        job_id=job_id,
        state=state,
        node="" if node in UNKNOWN else node,
        until=float(until) if until.isdigit() else None,
        reason="" if reason in UNKNOWN else reason,
    )


def _said(*words: str, environ: dict[str, str] | None = None) -> str:
    """What a command printed. Raises SlurmRefused, SlurmAway."""
    try:
        done: subprocess.CompletedProcess[str] = subprocess.run(  # noqa: S603 - Slurm's own commands, found as the user's shell finds them
            words,
            env=_environ() | (environ or {}),
            capture_output=True,
            text=True,
            errors="surrogateescape",  # as in paths
            timeout=LIMIT_S,
            check=False,
        )
    except FileNotFoundError:
        raise SlurmAway(
            f"{words[0]} is not installed here: "
            "`hopyard slurm` runs where Slurm's commands are, as on its login nodes"
        ) from None
    except subprocess.TimeoutExpired:
        raise SlurmAway(f"{words[0]} has not answered for {LIMIT_S:g} s") from None
    if done.returncode:
        raise _fault(words, done.stderr or done.stdout)
    return done.stdout


def _environ() -> dict[str, str]:
    """The environment for Slurm's commands, which sbatch passes on to the job."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_UNHEARD) and name not in UNFIT
    }


def _fault(words: Sequence[str], said: str) -> Failure:
    lines = [line.strip() for line in said.splitlines() if line.strip()] or ["it gave no reason"]
    kind = SlurmAway if _UNANSWERED.search(said) else SlurmRefused
    return kind(f"{words[0]}: {_SPOKEN_BY.sub('', lines[-1])}")
