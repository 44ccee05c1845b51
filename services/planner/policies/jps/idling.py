"""Beyond the paper: a job may be faster without some of its GPUs, since all exchange gradients. Pure."""

from collections.abc import Sequence
from itertools import accumulate

from schemas.ids import NodeId
from schemas.placement import Configuration, Gang
from services.planner.policies.jps.speeds import GangSpeeds


def without_slow_nodes(
    speeds: GangSpeeds, job: int, place: Configuration, demand: Sequence[int]
) -> Gang | None:
    """The fastest gang on the first so many nodes, those with most samples/s first; None: all are better.

    By the law of communication alone, for nothing is estimated yet.
    """
    rates = speeds.rates[job]
    order = sorted(place, key=lambda node: (-place[node] * rates[node], node))
    having = list(accumulate(place[node] for node in order[:-1]))
    gpus = {max((count for count in demand if count <= own), default=0) for own in having} - {0}
    if not gpus:
        return None
    fewer = min(
        (_first(place, order, count) for count in sorted(gpus)), key=lambda one: _about_s(speeds, job, one)
    )
    found, all_of_it = speeds.gang(job, fewer), speeds.gang(job, place)
    better = speeds.completion_s(job, found, {}) < speeds.completion_s(job, all_of_it, {})
    return found if better else None


def _first(place: Configuration, order: Sequence[NodeId], gpus: int) -> Configuration:
    """So many GPUs, node by node."""
    found: Configuration = {}
    for node in order:
        own = min(place[node], gpus)
        if not own:
            break
        found[node] = own
        gpus -= own
    return found


def _about_s(speeds: GangSpeeds, job: int, place: Configuration) -> float:
    """Λ with shares in proportion to speed, were samples divisible."""
    rates = speeds.rates[job]
    speed = sum(gpus * rates[node] for node, gpus in place.items())
    return speeds.spread_s(
        job, sum(place.values()), speed, inside=next(iter(place)) if len(place) == 1 else None
    )
