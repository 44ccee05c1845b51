"""Facts as lines for people: the time, the job, node or plan concerned, and what happened in words."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hopyard.show.causes import cause_text
from hopyard.show.jobs import exit_text, places
from hopyard.show.stages import STAGES
from hopyard.show.times import Times
from hopyard.show.units import duration, gpu_counts, in_a_line, number, on_one_line, plural, share, withheld
from schemas import events as facts
from schemas.base import Event
from schemas.instances import instance_name
from schemas.plans import Cause, PlanKind

STOPPED = {
    facts.PreemptReason.INTERRUPTED: "interrupted",
    facts.PreemptReason.FAILED: "failed, to be tried again,",
    facts.PreemptReason.MERGE: "merged",
}
"""what became of a preempted job, by reasons that have a word of their own"""
OUTCOMES = {
    facts.Outcome.CHECKPOINTED: "checkpointed",
    facts.Outcome.COMPLETED: "completed",
    facts.Outcome.FAILED: "failed",
    facts.Outcome.REFUSED: "refused",
    facts.Outcome.INTERRUPTED: "interrupted",
    facts.Outcome.QUOTA: "its share done",
}
"""how the processes of a job on a node ended"""
SAVED = frozenset({facts.Outcome.CHECKPOINTED, facts.Outcome.COMPLETED, facts.Outcome.QUOTA})
"""outcomes after which the samples of a worker count"""
NAMED_AT_MOST = 3
"""measurements of a round that are named; more are only counted"""
WHO_WIDTH = 22


def fact_line(fact: Event, times: Times) -> str:
    return _line(times.column(fact.at), _who(fact), WORDS[type(fact)](fact))


def plain_line(fields: Mapping[str, object], times: Times) -> str:
    """A line for a fact of a later version: its name and its plain fields."""
    at = fields.get("at")
    return _line(
        times.column(at if isinstance(at, float | int) else 0.0),
        str(fields.get("job_id", "")),
        _plain(fields),
    )


def _line(at: str, who: str, words: str) -> str:
    return on_one_line(f"{at}  {who:<{WHO_WIDTH}}  {words}").rstrip()


def _who(fact: Event) -> str:
    match fact:
        case facts.NodeEvent(node_id=node_id):
            return node_id
        case facts.ProfilingPlanned(round=number_of_it) | facts.ProfilingAdded(round=number_of_it):
            return f"round {number_of_it}"
        case facts.PlanPublished(plan_id=plan_id):
            return plan_id
        case facts.ServiceLed(service=service, instance=instance):
            return instance_name(service, instance)
        case _:
            return str(getattr(fact, "job_id", ""))


def _plain(fields: Mapping[str, object]) -> str:
    rest = (
        f"{name}={value}"
        for name, value in fields.items()
        if isinstance(value, str | int | float) and name not in ("fact", "at")
    )
    return " ".join([str(fields.get("fact", "?")), *rest])


# ---- jobs


def _submitted(fact: facts.JobSubmitted) -> str:
    spec = fact.spec
    types = f" of {', '.join(spec.gpu_types)}" if spec.gpu_types else ""
    on_hold = "; on hold" if fact.on_hold else ""
    what = f"{spec.workload.model} on {spec.workload.dataset}, {gpu_counts(spec.demand)}{types}"
    return f"submitted: {what}{on_hold}"


def _profiled(fact: facts.JobProfiled) -> str:
    types = ", ".join(fact.modules)
    known = f"known from an earlier job like it ({types})" if fact.known else f"measured on {types}"
    unusable = (f"not on {kind}: {why}" for kind, why in fact.unusable.items())
    return "; ".join([known if fact.modules else "measured on no GPU type", *unusable])


def _queued(fact: facts.JobQueued) -> str:
    return f"queued, expected to run {duration(fact.age_s)}"


def _type_estimated(fact: facts.JobTypeEstimated) -> str:
    return f"can run on {fact.gpu_type} too, {number(fact.single_gpu)} samples/s on one GPU"


def _started(fact: facts.JobStarted) -> str:
    rate = "" if fact.learning_rate is None else f", learning rate {number(fact.learning_rate)}"
    return f"runs on {places(fact.gang)}, {number(fact.global_batch)} samples an iteration{rate}"


def _preempted(fact: facts.JobPreempted) -> str:
    moved = fact.cause is not None and fact.cause.moved and fact.reason is not facts.PreemptReason.MERGE
    what = "moved" if moved else STOPPED.get(fact.reason, "preempted")
    return f"{what} at {number(fact.samples_done)} samples {_because(fact)}"


def _because(fact: facts.JobPreempted) -> str:
    text = cause_text(fact.reason, fact.cause)
    by_a_plan = fact.reason is facts.PreemptReason.PLAN
    return text if by_a_plan and (fact.cause is None or fact.cause.plan_id) else f"since {text}"


def _round(fact: facts.ProfilingPlanned) -> str:
    return f"begins with measurements: {_runs(fact.runs)}" if fact.runs else "begins"


def _runs(runs: Sequence[facts.ProfileRun]) -> str:
    named = [f"{run.job_id} on {run.node_id}" for run in runs[:NAMED_AT_MOST]]
    more = f" and {len(runs) - NAMED_AT_MOST} more" if len(runs) > NAMED_AT_MOST else ""
    return f"{', '.join(named)}{more}"


def _measured(fact: facts.ProfileMeasured) -> str:
    mean_s = sum(fact.iteration_s) / max(len(fact.iteration_s), 1)
    return f"measured on {fact.gpu_type} ({fact.node_id}): {duration(mean_s)} an iteration"


def _unmeasured(fact: facts.ProfileFailed) -> str:
    return f"not measured on {fact.gpu_type} ({fact.node_id}){_next_try(fact)}: {in_a_line(fact.reason)}"


def _next_try(fact: facts.ProfileFailed) -> str:
    """When it is tried again; after a fault of its own the attempts decide whether it is."""
    if fact.final:
        return ", given up"
    if fact.absent:
        return ", next on another node"
    return "" if fact.repeatable else ", again next round"


def _plan(fact: facts.PlanPublished) -> str:
    kind = "first plan" if fact.kind is PlanKind.FIRST else "fragment plan"
    counts = (
        f"{len(fact.placements)} placed, {len(fact.left_out)} left out, {plural(fact.idle_gpus, 'GPU')} idle"
    )
    gap = f", gap {share(fact.gap)}" if fact.gap else ""
    notes = "".join(f"; {in_a_line(note)}" for note in fact.notes)
    horizon = "" if fact.horizon_s is None else f"; no plan ends all jobs within {duration(fact.horizon_s)}"
    return (
        f"{kind} of round {fact.round} by {fact.policy}: {counts} ({STAGES[fact.stage]}{gap}){horizon}{notes}"
    )


def _refused(fact: facts.PlacementRefused) -> str:
    return f"not started ({fact.plan_id}): {in_a_line(fact.reason)}{_taken_for(fact.cause)}"


def _taken_for(cause: Cause | None) -> str:
    """By which plan a placement was taken back, and for which jobs; or on which node it ended."""
    if cause is not None and cause.plan_id is not None:
        return f", {cause_text('plan', cause)}"
    return "" if cause is None or cause.node is None else f" ({cause.node})"


# ---- nodes and workers


def _joined(fact: facts.NodeJoined) -> str:
    node, still = fact.node, len(fact.workers)
    running = f"; {plural(still, 'placement')} still there" if still else ""
    kept = f"; {withheld(fact.withheld)}" if fact.withheld else ""
    return f"joined: {plural(node.gpus, 'GPU')} of {node.gpu_type}{running}{kept}"


def _withheld(fact: facts.GpusWithheld) -> str:
    return withheld(fact.gpus) if fact.gpus else "no GPU is withheld any more"


def _start_ordered(fact: facts.StartOrdered) -> str:
    gpus = fact.gang.on(fact.node_id)
    if fact.profile_iterations:
        return f"ordered to be measured on {fact.node_id}, {fact.profile_iterations} iterations"
    resumed = f" from {number(fact.samples_done)} samples" if fact.samples_done else ""
    return f"ordered to start on {fact.node_id}:{gpus}{resumed}"


def _stopped(fact: facts.WorkerStopped) -> str:
    if fact.outcome is facts.Outcome.COMPLETED and not fact.samples_done:  # as a worker that measures ends
        return f"its measurement on {fact.node_id} has ended"
    at = f" at {number(fact.samples_done)} samples" if fact.leads and fact.outcome in SAVED else ""
    how = exit_text(fact.exit_code, fact.signal)
    ended = f"{OUTCOMES[fact.outcome]}{at}{f' ({how})' if how else ''}"
    return f"ended on {fact.node_id}, {ended}{_colon(fact.reason)}"


def _colon(reason: str) -> str:
    return f": {in_a_line(reason)}" if reason else ""


def _up(fact: facts.WorkerStarted) -> str:
    restored = fact.samples_restored
    from_there = "" if not restored else f", restored at {number(restored)} samples"
    return f"up on {fact.node_id}, GPU {','.join(map(str, fact.gpu_indices))}{from_there}"


def _formed(fact: facts.GangFormed) -> str:
    if fact.meeting:
        return f"all its workers are up; ordered to train on {fact.node_id}, to meet at {fact.meeting}"
    return f"all its workers are up; ordered to train, led by {fact.node_id}"


WORDS: Mapping[type[Event], Callable[[Any], str]] = {
    facts.JobSubmitted: _submitted,
    facts.JobProfiled: _profiled,
    facts.JobQueued: _queued,
    facts.JobTypeProfiled: lambda fact: f"known on {fact.gpu_type} too, of which a node has come",
    facts.JobTypeEstimated: _type_estimated,
    facts.JobRejected: lambda fact: f"rejected: {in_a_line(fact.reason)}",
    facts.JobStarted: _started,
    facts.JobPreempted: _preempted,
    facts.JobCompleted: lambda fact: f"completed, {number(fact.samples_done)} samples",
    facts.JobFailed: lambda fact: f"failed: {in_a_line(fact.reason)}",
    facts.JobCancelled: lambda _: "cancelled",
    facts.JobHeld: lambda _: "on hold",
    facts.JobReleased: lambda _: "no longer on hold",
    facts.JobPriorityChanged: lambda fact: f"priority {number(fact.priority)} from the next plan on",
    facts.ProfilingPlanned: _round,
    facts.ProfilingAdded: lambda fact: f"more measurements: {_runs(fact.runs)}",
    facts.ProfileMeasured: _measured,
    facts.ProfileFailed: _unmeasured,
    facts.PlanPublished: _plan,
    facts.PolicyChosen: lambda fact: f"policy {fact.policy} is set",
    facts.PlacementRefused: _refused,
    facts.NodeJoined: _joined,
    facts.NodeLost: lambda _: "lost: no heartbeat came in time",
    facts.NodeReturned: lambda _: "is back",
    facts.NodeDrained: lambda fact: f"drains: {in_a_line(fact.reason) or 'nothing new starts there'}",
    facts.NodeRestored: lambda _: "is in use again",
    facts.NodeRemoved: lambda _: "removed",
    facts.GpusWithheld: _withheld,
    facts.StartOrdered: _start_ordered,
    facts.GangFormed: _formed,
    facts.TurnsOrdered: lambda fact: f"ordered to take other turns on {fact.node_id}",
    facts.StopOrdered: lambda fact: f"ordered to stop on {fact.node_id}",
    facts.WorkerStarted: _up,
    facts.WorkerCheckpointed: lambda fact: f"saved at {number(fact.samples_done)} samples",
    facts.WorkerStopped: _stopped,
    facts.ServiceLed: lambda fact: f"leads, by token {fact.token}",
}
"""what happened, in a few words, by kind of fact"""
