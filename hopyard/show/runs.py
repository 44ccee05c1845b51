"""The runs of a job, a line for each: when, on which GPUs, how far it came, how fast, and the estimate."""

from collections.abc import Sequence

from hopyard.show.columns import Column, Listing
from hopyard.show.jobs import place_parts
from hopyard.show.times import Times
from hopyard.show.units import brief, duration, number
from schemas.events import PreemptReason
from schemas.overview import RunView

ENDS = {
    PreemptReason.PLAN: "stopped",
    PreemptReason.NODE_LOST: "node lost",
    PreemptReason.AGENT_RESTARTED: "agent restarted",
    PreemptReason.INTERRUPTED: "interrupted",
    PreemptReason.FAILED: "failed",
    PreemptReason.NODE_LEFT: "node left",
    PreemptReason.MERGE: "merged",
}
"""how a run ended, in a word or two"""


def runs_listing(runs: Sequence[RunView], times: Times) -> Listing[RunView]:
    """A table of the runs, oldest first."""
    columns = (
        Column[RunView]("began", lambda run: times.short(run.started_at)),
        Column[RunView]("ran", lambda run: _ran(run, times), right=True, spare=3),
        Column[RunView]("GPUs", lambda run: str(run.gang.gpus), right=True),
        Column[RunView]("on", lambda run: place_parts(run.gang), cut=12, parts="nodes"),
        Column[RunView](
            "samples", lambda run: f"{number(run.samples_from)}–{number(run.samples_to)}", right=True
        ),
        Column[RunView]("samples/s", lambda run: number(run.measured_throughput), right=True, spare=1),
        Column[RunView]("expected", lambda run: number(run.estimated_throughput), right=True, spare=2),
        Column[RunView]("start", lambda run: duration(run.start_s), right=True, spare=6),
        Column[RunView]("stop", lambda run: duration(run.stop_s), right=True, spare=5),
        Column[RunView]("end", _end, spare=4),
    )
    return Listing(columns, runs)


def _ran(run: RunView, times: Times) -> str:
    until = times.now if run.ended_at is None else run.ended_at
    return brief(None if until is None else until - run.started_at)


def _end(run: RunView) -> str:
    if run.preempted is None:
        return ""
    moved = run.preempted is PreemptReason.PLAN and run.cause is not None and run.cause.moved
    return "moved" if moved else ENDS[run.preempted]
