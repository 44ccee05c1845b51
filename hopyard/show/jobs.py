"""Jobs on the screen: a line for each job, or everything about one job. Pure."""

import shlex
import signal
from collections.abc import Iterable, Mapping

from rich.table import Table
from rich.text import Text

from hopyard.show.columns import Column
from hopyard.show.tables import facts_table, state_text
from hopyard.show.times import Times
from hopyard.show.units import brief, duration, gpu_counts, in_a_line, memory, number, share
from schemas.jobs import JobSpec
from schemas.placement import LOCKSTEP, Gang
from schemas.plans import Layer
from schemas.views import HoldView, JobView
from shared.domain import gangs
from shared.domain.states import JobState

SHELL = ("sh", "-c")
"""the beginning of a command that is a line for the shell, which is shown without it"""
SOURCES = {
    Layer.ENTITY: "from the entity layer",
    Layer.TYPE: "from the type layer",
    Layer.THEORY: "from the theory layer",
    Layer.CACHED: "as for an earlier plan",
}
"""where an estimate comes from"""
DEFAULT = ("job", "state", "gpus", "done", "started", "ended", "waited", "note")


def job_columns(times: Times) -> Mapping[str, Column[JobView]]:
    """All columns, by their names in `ps -o`. Of the columns of `DEFAULT`, `waited` is left out first."""
    return {
        "job": Column("job", lambda job: job.job_id),
        "state": Column("state", lambda job: state_text(job.state), spare=1),
        "gpus": Column("gpus", _gpus, right=True, spare=4),
        "done": Column("done", _done, right=True, spare=5),
        "started": Column("started", lambda job: times.short(job.started_at), spare=2),
        "ended": Column("ended", lambda job: times.short(job.ended_at), spare=3),
        "waited": Column("waited", _waited_briefly, spare=7),
        "note": Column("note", _note, spare=6, cut=12, parts="nodes"),
        "submitted": Column("submitted", lambda job: times.short(job.submitted_at)),
        "on": Column("on", lambda job: place_parts(job.gang)),
        "name": Column("name", lambda job: job.spec.name),
        "project": Column("project", lambda job: job.spec.project),
        "user": Column("user", lambda job: job.spec.user),
        "model": Column("model", lambda job: job.spec.workload.model),
        "priority": Column("priority", lambda job: number(job.spec.priority), right=True),
        "restarts": Column("restarts", lambda job: str(job.restarts), right=True),
        "lr": Column("LR", lambda job: number(job.latency_ratio), right=True),
        "reason": Column("reason", lambda job: in_a_line(job.reason)),
    }


def job_table(job: JobView, times: Times) -> Table:
    """Everything known about one job, one thing a line."""
    workload = job.spec.workload
    return facts_table(
        {
            "job": job.job_id,
            "name": job.spec.name,
            "project": job.spec.project,
            "user": job.spec.user,
            "state": state_text(job.state),
            "reason": job.reason,
            "on hold": _on_hold(job, times),
            "not measured": job.unmeasured,
            "exit": exit_text(job.exit_code, job.signal) if job.state == JobState.FAILED else "",
            "workload": f"{workload.model} on {workload.dataset}, {workload.batch_size} per GPU",
            "may use": f"{gpu_counts(job.spec.demand)} of {', '.join(job.spec.gpu_types) or 'any type'}",
            "runs on": places(job.gang) if job.gang else "",
            "speed": _speed(job),
            "done": f"{number(job.samples_done)} of {number(job.spec.samples)} samples ({_done(job)})",
            "submitted": times.moment(job.submitted_at),
            "started": times.moment(job.started_at),
            "ended": times.moment(job.ended_at),
            "waited": _waited(job),
            "expected to run": duration(job.age_s),
            "latency ratio": number(job.latency_ratio),
            "restarts": _restarts(job),
            "running": _running(job),
            "checkpoints": _checkpoints(job, times),
            **_launch(job.spec),
        }
    )


def exit_text(exit_code: int | None, signal_number: int | None) -> str:
    """How a process ended."""
    if signal_number is not None:
        names = {each.value: f", {each.name}" for each in signal.Signals}
        return f"signal {signal_number}{names.get(signal_number, '')}"
    return "" if exit_code is None else f"exit code {exit_code}"


def ended_text(state: str) -> str:
    """What became of a job that has ended, after its id."""
    return "has failed" if state == JobState.FAILED else f"is {state}"


def _restarts(job: JobView) -> str:
    """The number of restarts, with the number of interruptions and failures among them."""
    retries = job.spec.retries
    allowed = f", {retries} {'retry' if retries == 1 else 'retries'} allowed"
    parts = (
        f"{job.interruptions} interrupted" if job.interruptions else "",
        f"{job.failures} failed{allowed}" if job.failures and retries else "",
    )
    why = ", ".join(filter(None, parts))
    return f"{job.restarts} ({why})" if why else str(job.restarts)


def _running(job: JobView) -> str:
    limit_s = job.spec.time_limit_s
    return "" if limit_s is None else f"{duration(job.running_s) or '0s'} of {duration(limit_s)} at most"


def _checkpoints(job: JobView, times: Times) -> str:
    if job.saved_at is None:
        return ""
    return (
        f"{job.checkpoints}, the newest at {number(job.samples_saved)} samples, {times.moment(job.saved_at)}"
    )


def _launch(spec: JobSpec) -> dict[str, str]:
    """How a job's processes are started."""
    shell = spec.command[:2] == SHELL and len(spec.command) > len(SHELL)
    limits = (
        f"{number(spec.cpus)} CPU cores" if spec.cpus is not None else "",
        f"{memory(spec.memory)} of memory" if spec.memory is not None else "",
    )
    return {
        "command": spec.command[len(SHELL)] if shell else shlex.join(spec.command),
        "folder": spec.working_directory,
        "environment": shlex.join(f"{name}={value}" for name, value in spec.environment.items()),
        "image": spec.image,
        "per GPU": ", ".join(filter(None, limits)),
        "preemptible": "" if spec.preemptible else "no",
        "modes": ", ".join(spec.modes),
    }


def places(gang: Gang) -> str:
    """Nodes with their GPUs, and how the gang synchronises unless it is in lockstep."""
    text, sync = " ".join(f"{one.node}:{one.gpus}" for one in gang.members), gangs.in_words(gang)
    return f"{text} ({sync})" if sync else text


def place_parts(gang: Gang | None) -> tuple[str, ...]:
    """Nodes with their GPUs, a part for each node; the last names the mode unless that is lockstep."""
    if gang is None:
        return ()
    *others, last = (f"{one.node}:{one.gpus}" for one in gang.members)
    return (*others, last if gang.sync == LOCKSTEP else f"{last} ({gang.mode})")


def _note(job: JobView) -> str | tuple[str, ...]:
    """Why a job failed, was rejected, is on hold or could not be measured; otherwise where it runs."""
    on_hold = "" if job.hold is None else f"on hold{_by(job.hold)}"
    return in_a_line(job.reason or on_hold or _unmeasured(job)) or place_parts(job.gang)


def _on_hold(job: JobView, times: Times) -> str:
    return "" if job.hold is None else f"since {times.moment(job.hold.at)}{_by(job.hold)}"


def _by(hold: HoldView) -> str:
    return f" by {hold.by}" if hold.by else ""


def _unmeasured(job: JobView) -> str:
    return f"not measured {job.unmeasured}" if job.unmeasured else ""


def _done(job: JobView) -> str:
    """The share of the samples done, at most 100 %: the last update may slightly exceed a job's samples."""
    return share(min(job.samples_done / job.spec.samples, 1.0))


def _gpus(job: JobView) -> str:
    """The GPUs that a job has; for a waiting job, the numbers that it may have."""
    if job.ended_at is not None:
        return ""
    return str(job.gang.gpus) if job.gang else f"({_counts(job.spec.demand)})"


def _counts(demand: Iterable[int]) -> str:
    return "/".join(map(str, demand))


def _waited(job: JobView) -> str:
    """The wait so far, and the whole wait as expected."""
    so_far = duration(job.wait_s)
    if job.expected_wait_s is None:
        return so_far
    if job.wait_s > job.expected_wait_s:
        return f"{so_far}, longer than the ~{duration(job.expected_wait_s)} expected"
    return f"{so_far} of ~{duration(job.expected_wait_s)}"


def _waited_briefly(job: JobView) -> Text | str:
    """As `_waited`; an expectation that proved wrong is left out."""
    so_far = brief(job.wait_s)
    if job.expected_wait_s is None or job.wait_s > job.expected_wait_s:
        return so_far
    return f"{so_far} of ~{brief(job.expected_wait_s)}"


def _speed(job: JobView) -> str:
    if job.estimated_throughput is None:
        return ""
    source = f", {SOURCES[job.layer]}" if job.layer else ""
    return f"{number(job.estimated_throughput)} samples/s estimated{source}"
