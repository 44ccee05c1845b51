"""Beyond the paper: a job may be faster on fewer GPUs, since all of them exchange gradients. Pure."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from schemas.ids import NodeId
from schemas.placement import Configuration, Gang
from services.planner.policies.jps.speeds import GangSpeeds
from shared.domain.sums import plain_sum


def without_slow_nodes(
    speeds: GangSpeeds, job: int, place: Configuration, demand: Sequence[int]
) -> Gang | None:
    """The fastest gang on one of the place's nodes, or on its fastest nodes; None: the whole place is faster.

    Speeds are those by the law of communication, since nothing is estimated yet.
    """
    offers = list(_offers(speeds, job, place, demand))
    if not offers:
        return None
    fewer = min(offers, key=lambda one: _completion_s(speeds, job, one))
    found, all_of_it = speeds.gang(job, fewer), speeds.gang(job, place)
    better = speeds.completion_s(job, found, {}) < speeds.completion_s(job, all_of_it, {})
    return found if better else None


def _offers(
    speeds: GangSpeeds, job: int, place: Configuration, demand: Sequence[int]
) -> Iterator[Configuration]:
    rates = speeds.rates[job]
    order = sorted(place, key=lambda node: (-place[node] * rates[node], node))
    having = accumulate(place[node] for node in order[:-1])
    for gpus in sorted({_most(demand, own) for own in having} - {0}):
        yield _first(place, order, gpus)
    for node in order[1:]:
        if gpus := _most(demand, place[node]):
            yield {node: gpus}


def _most(demand: Sequence[int], gpus: int) -> int:
    """The largest count of a demand that is not above `gpus`; 0: there is none."""
    at = bisect_right(demand, gpus)
    return demand[at - 1] if at else 0


def _first(place: Configuration, order: Sequence[NodeId], gpus: int) -> Configuration:
    """The first `gpus` GPUs of a place, node by node in this order."""
    found: Configuration = {}
    for node in order:
        own = min(place[node], gpus)
        if not own:
            break
        found[node] = own
        gpus -= own
    return found


def _completion_s(speeds: GangSpeeds, job: int, place: Configuration) -> float:
    """Λ with shares in proportion to speed, not rounded to whole samples."""
    rates = speeds.rates[job]
    speed = plain_sum(gpus * rates[node] for node, gpus in place.items())
    return speeds.spread_s(
        job, sum(place.values()), speed, inside=next(iter(place)) if len(place) == 1 else None
    )
