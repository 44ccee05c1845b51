"""Why a placement ended, in words: for which jobs, and what that was worth."""

import msgspec

from hopyard.show.units import number, plural
from schemas.plans import Cause, Standing

UNSAID = {
    "plan": "by a plan",
    "node-lost": "a node was lost",
    "agent-restarted": "an agent restarted",
    "interrupted": "its processes were interrupted",
    "failed": "its processes failed",
    "node-left": "the time of a node was over",
    "merge": "its copies did their shares",
}
"""by reason: words for a cause that names neither node nor plan, as in logs of earlier versions"""


def cause_text(reason: str, cause: Cause | None) -> str:
    if cause is None:
        return UNSAID.get(reason, reason)
    if cause.plan_id is None:
        return {
            "node-lost": f"{cause.node} was lost",
            "agent-restarted": f"the agent of {cause.node} restarted",
            "interrupted": f"its processes on {cause.node} were interrupted",
            "failed": f"its processes on {cause.node} failed",
            "node-left": f"the time of {cause.node} was over",
        }.get(reason, f"its worker on {cause.node} ended")
    if cause.on_hold:
        return f"since it was put on hold ({cause.plan_id})"
    if reason == "merge":
        return f"its copies get new shares{_shares_changed(cause)}{_worth(cause)} ({cause.plan_id})"
    if cause.moved and cause.to and _worth_more(cause.standing):  # it would have moved without them, too
        alone = msgspec.structs.replace(cause, to=(), others=0)
        start = "starts" if len(cause.to) + cause.others == 1 else "start"
        return f"{_for_whom(alone)}{_worth(alone)}; {_names(cause)} {start} there ({cause.plan_id})"
    return f"{_for_whom(cause)}{_worth(cause)} ({cause.plan_id})"


def _for_whom(cause: Cause) -> str:
    if cause.to:
        return f"for {_names(cause)}"
    if cause.node is not None:
        return f"since {cause.node} drains"
    if not cause.moved:
        return "and no job took its place"
    return "for a place that is worth more" if _worth_more(cause.standing) else "for another place"


def _shares_changed(cause: Cause) -> str:
    """Why the copies of a job are merged, if it is known."""
    if cause.to:
        return f", to make room for {_names(cause)}"
    return f", as {cause.node} drains" if cause.node is not None else ""


def _names(cause: Cause) -> str:
    names = ", ".join(f"{one.job_id} ({plural(one.gpus, 'GPU')})" for one in cause.to)
    return names + (f" and {cause.others} more" if cause.others else "")


def _worth_more(own: Standing | None) -> bool:
    return own is not None and own.gain is not None and own.stay is not None and own.gain > own.stay


def _worth(cause: Cause) -> str:
    """The figures of the jobs that a job made room for, against its own; or its own at its new place.

    They are gains if the job has one, otherwise priorities.
    """
    own, measures = cause.standing, cause.measures
    by_gain = bool(measures.gain) and (own is None or own.gain is not None)
    measure = short(measures.gain if by_gain else measures.priority)
    theirs = [text for one in cause.to if (text := _figure(one.standing, by_gain=by_gain))]
    mine = _own(cause, by_gain=by_gain)
    if not measure or not (theirs or mine):
        return ""
    if not theirs:
        return f": its own {measure} {mine}" if cause.to else f": {measure} {mine}"
    return f": {measure} {', '.join(theirs)}" + (f" against its {mine}" if mine else "")


def short(measure: str) -> str:
    """The name of a measure, without its explanation."""
    return measure.partition(",")[0]


def _own(cause: Cause, *, by_gain: bool) -> str:
    own = cause.standing
    if own is not None and not cause.to and by_gain and own.stay is not None:
        return f"{number(own.gain)} against {number(own.stay)} where it was"
    return _figure(own, by_gain=by_gain)


def _figure(standing: Standing | None, *, by_gain: bool) -> str:
    if standing is None:
        return ""
    return number(standing.gain if by_gain else standing.priority)
