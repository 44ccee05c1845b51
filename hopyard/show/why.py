"""Why a job waits, or runs where it does, in sentences. Pure."""

from collections.abc import Callable, Iterator, Sequence

from hopyard.show.causes import cause_text, short
from hopyard.show.jobs import ended_text, exit_text, places
from hopyard.show.stages import STAGES
from hopyard.show.units import duration, in_a_line, legible, number, plural, share
from schemas.events import PreemptReason
from schemas.plans import Measures, PlanKind, Standing, Waiting
from schemas.views import HolderView, PlanView, PreemptionView, WhyView
from shared.domain.stand_in import about_the_planner, stand_in
from shared.domain.states import ENDED

Moment = Callable[[float | None], str]
"""a function that puts a time into words, such as `Times.moment`"""

LEAST_GAP = 0.0005
"""a smaller gap is not mentioned"""
OPENINGS = {
    "no-nodes": "It waits for a node",
    "starting": "It is starting",
    "refused": "Its last placement could not start",
    Waiting.PROFILING: "It waits to be measured",
    Waiting.NO_ESTIMATE: "It waits for an estimate",
    Waiting.NOT_PLANNED: "It waits for a plan",
    Waiting.OUTSIDE_WINDOW: "It is too far back in the queue: plans consider only as many jobs from its head "
    "as fill the GPUs with their smallest demands",
    Waiting.NO_CONFIGURATION: "No nodes that it may use have room for it",
    Waiting.OUTWEIGHED: "It could run; other jobs come first",
    Waiting.ON_HOLD: "It is on hold",
}
"""the first words on why a job waits, by reason"""
SELF_MADE = frozenset({PreemptReason.INTERRUPTED, PreemptReason.FAILED})
"""reasons for which a job's own processes ended its run"""
KEPT = ", at least until the next round (plans within a round preempt no job)"
HOLDING = frozenset({Waiting.OUTSIDE_WINDOW, Waiting.NO_CONFIGURATION, Waiting.OUTWEIGHED})
"""reasons for which the holders of the GPUs are listed"""


def preemptions_text(preemptions: Sequence[PreemptionView], moment: Moment) -> str:
    """The earlier runs of a job, a line for each."""
    lines = [
        f"  {moment(preemption.started_at)} to {moment(preemption.at)} on {places(preemption.gang)}, "
        f"{_ended(preemption)} at {number(preemption.samples_done)} samples: {_cause(preemption)}"
        for preemption in preemptions
    ]
    return "\n".join(["It ran before:", *lines])


def why_text(why: WhyView, moment: Moment) -> str:
    """Why a job waits or runs: a sentence a line, the reason first."""
    return legible("\n".join(_sentences(why, moment)))


def _sentences(why: WhyView, moment: Moment) -> Iterator[str]:
    if why.state in ENDED:
        yield f"{why.job_id} {ended_text(why.state)}{_since(why, moment)}{_colon(why)}."
        return
    if why.state == "running":
        yield from _running(why, moment)
        return
    yield f"{why.job_id} is {why.state} and does not run. {_opening(why, moment)}."
    if why.reason in HOLDING:
        yield from filter(None, (_queue(why), _holders(why, moment)))
    if why.plan is not None:
        yield f"{_decided(why.plan, moment)}."
        yield from _planned_by(why.plan)
        if why.reason in HOLDING and (explained := _explained(why.plan.measures)):
            yield explained
    if why.last_preemption is not None:
        yield _preempted(why.last_preemption, moment)
    yield _waited(why)


def _running(why: WhyView, moment: Moment) -> Iterator[str]:
    where = f" on {places(why.gang)}" if why.gang else ""
    speed = f", estimated at {number(why.estimated_throughput)} samples/s" if why.estimated_throughput else ""
    yield f"{why.job_id} runs{where}{_since(why, moment)}{speed}."
    if why.hold is not None:
        stops = "the next plan for all jobs stops it"
        outcome = "it is not preemptible and keeps its GPUs" if why.hold.keeps_gpus else stops
        yield f"It is on hold, since {moment(why.hold.at)}: {outcome}."
    if why.plan is not None:
        figures = _figures(why.standing, why.plan.measures)
        yield f"{_decided(why.plan, moment)}{f': {figures}' if figures else ''}."
        yield from _planned_by(why.plan)
        if explained := _explained(why.plan.measures):
            yield explained
    if why.last_preemption is not None:
        yield _preempted(why.last_preemption, moment)


def _opening(why: WhyView, moment: Moment) -> str:
    opening, rest = OPENINGS.get(why.reason, why.reason), in_a_line(_colon(why))
    if why.reason == Waiting.ON_HOLD and why.detail:
        opening, rest = f"{opening}, {in_a_line(why.detail)}", ""
    if why.reason == Waiting.NO_CONFIGURATION and why.detail:  # which need not be want of room
        opening = "It can have no GPUs"
    return f"{opening}{_since(why, moment)}{rest}"


def _colon(why: WhyView) -> str:
    """The details of the reason, unless they only repeat the state."""
    return f": {why.detail}" if why.detail and why.detail != f"it is {why.state}" else ""


def _since(why: WhyView, moment: Moment) -> str:
    return f", since {moment(why.since)}" if why.since is not None else ""


def _queue(why: WhyView) -> str:
    if why.position is None or why.queue_length is None:
        return ""
    measures = why.plan.measures if why.plan else Measures()
    order = f" by {short(measures.priority)}" if measures.priority else ""
    figures = _figures(why.standing, measures)
    own = f"; its own: {figures}" if figures else ""
    alone = why.queue_length == 1
    place = "the only one that waits" if alone else f"number {why.position} of {why.queue_length} that wait"
    return f"It is {place}, in the queue{order}{own}."


def _holders(why: WhyView, moment: Moment) -> str:
    if not why.holders:
        return "No job holds GPUs that it could use." if why.plan is not None and why.plan.idle_gpus else ""
    measures = why.plan.measures if why.plan else Measures()
    first = why.plan is not None and why.plan.kind is PlanKind.FIRST
    decided_at = why.plan.at if why.plan else 0.0
    lines = [f"  {_holder(one, measures, decided_at, moment)}" for one in why.holders]
    kept = "" if first else KEPT
    return "\n".join([f"Other jobs hold the GPUs that it could use{kept}:", *lines])


def _holder(one: HolderView, measures: Measures, decided_at: float, moment: Moment) -> str:
    """A holder's GPUs, since when it has them, and why it came first."""
    since = f"since {moment(one.started_at)}" if one.started_at is not None else "about to start"
    ran = one.started_at is not None and one.started_at <= decided_at
    first = "it ran already" if ran else f"submitted {moment(one.submitted_at)}"
    figures = _figures(one.standing, measures) or first
    return f"{one.job_id}, {plural(one.gpus, 'GPU')}, {since}; {figures}"


def _figures(standing: Standing | None, measures: Measures) -> str:
    if standing is None:
        return ""
    found = ((measures.priority, standing.priority), (measures.gain, standing.gain))
    return ", ".join(f"{short(name)} {number(value)}" for name, value in found if name and value is not None)


def _explained(measures: Measures) -> str:
    """Explanations of figures whose name does not say what they are."""
    known = [name.partition(", ") for name in (measures.priority, measures.gain)]
    found = "; ".join(f"{name}: {what}" for name, _, what in known if what and what != "least first")
    return found and f"({found[0].upper()}{found[1:]}.)"


def _decided(plan: PlanView, moment: Moment) -> str:
    kind = "first plan" if plan.kind is PlanKind.FIRST else "fragment plan"
    gap = f", at most {share(plan.gap)} below the best" if plan.gap >= LEAST_GAP else ""
    by, _ = stand_in(plan.notes)
    how = f"{f'{by} in place of ' if by else ''}{plan.policy}, {STAGES[plan.stage]}{gap}"
    return f"Decided in {plan.plan_id}, a {kind} of round {plan.round} by {how}; {moment(plan.at)}"


def _planned_by(plan: PlanView) -> Iterator[str]:
    """Why another policy made the plan than the chosen one."""
    for note in about_the_planner(plan.notes):
        yield f"({in_a_line(note)}.)"


def _preempted(preemption: PreemptionView, moment: Moment) -> str:
    until = "it failed" if preemption.reason is PreemptReason.FAILED else f"it was {_ended(preemption)}"
    return (
        f"It ran on {places(preemption.gang)} until {until}, {moment(preemption.at)}, "
        f"at {number(preemption.samples_done)} samples: {_cause(preemption)}."
    )


def _cause(preemption: PreemptionView) -> str:
    """The cause of a preemption, with how processes ended, if they ended by themselves, and why."""
    how = exit_text(preemption.exit_code, preemption.signal)
    words = (f" ({how})" if how else "") + (f": {in_a_line(preemption.detail)}" if preemption.detail else "")
    return f"{cause_text(preemption.reason, preemption.cause).removeprefix('and ')}{words}"


def _ended(preemption: PreemptionView) -> str:
    if preemption.reason is PreemptReason.MERGE:
        return "merged"
    if preemption.reason in SELF_MADE:
        return preemption.reason.value
    return "moved" if preemption.cause is not None and preemption.cause.moved else "stopped"


def _waited(why: WhyView) -> str:
    so_far = f"It has waited {duration(why.wait_s)} so far"
    if why.expected_wait_s is None:
        return f"{so_far}."
    if why.wait_s > why.expected_wait_s:
        return f"{so_far}, longer than the ~{duration(why.expected_wait_s)} that were expected."
    return f"{so_far}, of ~{duration(why.expected_wait_s)} expected in all."
