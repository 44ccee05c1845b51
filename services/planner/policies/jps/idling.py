"""Beyond the paper: a job may be faster without some of its GPUs, since all exchange gradients. Pure."""

from collections.abc import Iterator, Sequence

from schemas.placement import Configuration, Gang
from services.planner.policies.jps.speeds import GangSpeeds


def without_slow_nodes(
    speeds: GangSpeeds, job: int, place: Configuration, demand: Sequence[int]
) -> Gang | None:
    """The fastest gang on some of the nodes, those with most samples/s first; None: all are better.

    By the law of communication alone, for nothing is estimated yet.
    """
    gang = speeds.gang(job, place)
    found, least_s = None, speeds.completion_s(job, gang, {})
    for fewer in _fewer(speeds, job, place, demand):
        one = speeds.gang(job, fewer)
        jct_s = speeds.completion_s(job, one, {})
        if jct_s < least_s:
            found, least_s = one, jct_s
    return found


def _fewer(
    speeds: GangSpeeds, job: int, place: Configuration, demand: Sequence[int]
) -> Iterator[Configuration]:
    rates = speeds.rates[job]
    order = sorted(place, key=lambda node: (-place[node] * rates[node], node))
    for count in range(1, len(order)):
        nodes = order[:count]
        gpus = max((one for one in demand if one <= sum(place[node] for node in nodes)), default=0)
        fewer: Configuration = {}
        for node in nodes:
            own = min(place[node], gpus - sum(fewer.values()))
            if own:
                fewer[node] = own
        if fewer:
            yield fewer
