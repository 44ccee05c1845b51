"""Invariants of messages: which well-formed fields cannot be true together. One table. Pure.

The types in `schemas/` say what one field may hold; this table says how the fields of a message must agree.
Both are checked where a message is read from the bus, so no core gets a message that cannot be true.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any, TypeVar

from schemas.base import Event, Message, Sample
from schemas.codec import Malformed, decode_fact, decode_sample
from schemas.events import (
    JobProfiled,
    JobSubmitted,
    JobTypeProfiled,
    NodeJoined,
    PlanPublished,
    PolicyChosen,
    ProfileMeasured,
    ProfilingAdded,
    ProfilingPlanned,
    StartOrdered,
)
from schemas.samples import ThroughputObserved
from shared.domain.policy_names import parted

M = TypeVar("M", bound=Message | None)


def read_fact(data: bytes) -> Event | None:
    """The fact, or None for a fact of a later version. Raises Malformed for one that is impossible."""
    return _possible(decode_fact(data))


def read_sample(data: bytes) -> Sample:
    """The sample. Raises Malformed, also for a sample that is impossible."""
    return _possible(decode_sample(data))


def impossible(message: Message) -> str:
    """Why the message cannot be true; empty if it can."""
    look = LOOKS.get(type(message))
    return look(message) if look is not None else ""


def _possible(message: M) -> M:
    if isinstance(message, Message) and (reason := impossible(message)):
        raise Malformed(reason)
    return message


def _submitted(fact: JobSubmitted) -> str:
    demand = fact.spec.demand
    ascending = all(fewer < more for fewer, more in pairwise(demand))
    return "" if ascending else "GPU counts that do not ascend"


def _profiled(fact: JobProfiled) -> str:
    if not all(modules.data for modules in fact.modules.values()):
        return "time modules without a way to load data"
    return "a type that is usable and not" if fact.modules.keys() & fact.unusable.keys() else ""


def _type_profiled(fact: JobTypeProfiled) -> str:
    return "" if fact.modules.data else "time modules without a way to load data"


def _measured(fact: ProfileMeasured) -> str:
    columns = (fact.data_s, fact.forward_s, fact.backward_s, fact.update_s, fact.iteration_s)
    even = len(set(map(len, columns))) == 1 and fact.data_s
    return "" if even else "not one number of each kind an iteration"


def _runs(fact: ProfilingPlanned | ProfilingAdded) -> str:
    return "" if _once(run.placement_id for run in fact.runs) else "one measurement twice"


def _plan(fact: PlanPublished) -> str:
    if not _once(one.placement_id for one in fact.placements):
        return "one placement twice"
    named = [*(one.job_id for one in fact.placements), *(one.job_id for one in fact.left_out)]
    return "" if _once(named) else "a job that is placed twice, or placed and left out"


def _policy(fact: PolicyChosen) -> str:
    try:
        parted(fact.policy)
    except ValueError as error:
        return str(error)
    return ""


def _joined(fact: NodeJoined) -> str:
    if max(fact.withheld, default=0) >= fact.node.gpus:
        return "a GPU withheld that the node has not"
    return "" if _once(fact.workers) and fact.modes else "one worker twice, or a node without a mode"


def _ordered(fact: StartOrdered) -> str:
    return "" if fact.gang.on(fact.node_id) else "an order to a node that is not of the gang"


def _observed(sample: ThroughputObserved) -> str:
    if sample.wait_s and len(sample.data_s) != len(sample.wait_s):
        return "not one wait for each time of loading"
    on_node = sample.gang.on(sample.node_id)
    return "" if on_node == sample.gpus_on_node else "other GPUs on the node than the gang has there"


def _once(names: Iterable[object]) -> bool:
    listed = list(names)
    return len(set(listed)) == len(listed)


LOOKS: Mapping[type[Message], Callable[[Any], str]] = {
    JobSubmitted: _submitted,
    JobProfiled: _profiled,
    JobTypeProfiled: _type_profiled,
    ProfileMeasured: _measured,
    ProfilingPlanned: _runs,
    ProfilingAdded: _runs,
    PlanPublished: _plan,
    PolicyChosen: _policy,
    NodeJoined: _joined,
    StartOrdered: _ordered,
    ThroughputObserved: _observed,
}
