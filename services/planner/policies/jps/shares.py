"""The shares of a job's GPUs in an iteration: in proportion to their speed (JPS, eq. 12). Pure."""

from collections.abc import Mapping

from schemas.ids import NodeId
from schemas.placement import Configuration, Gang, Proportional
from shared.domain import gangs
from shared.domain.sums import plain_sum

ROUNDING = 1e-9


def shared_by_speed(
    place: Configuration, rates: Mapping[NodeId, float], batch_size: int, *, most: Mapping[NodeId, float]
) -> Gang:
    """The gang with shares in proportion to speed; one in lockstep, if all shares are equal.

    `rates`: samples/s of one GPU, by node. `most`: batches, ≥ 1, that one GPU may take, by node; what a GPU
    may not take goes to the others in proportion to their speed.
    """
    found = gangs.proportional(place, _limited(place, rates, most), batch_size)
    assert isinstance(found.sync, Proportional)
    if all(
        samples == one.gpus * batch_size
        for one, samples in zip(found.members, found.sync.samples, strict=True)
    ):
        return Gang(found.members)
    return found


def _limited(
    place: Configuration, rates: Mapping[NodeId, float], most: Mapping[NodeId, float]
) -> dict[NodeId, float]:
    """Batches of one GPU by node: in proportion to speed, except on nodes at their limit."""
    full: set[NodeId] = set()
    while True:
        spare = sum(place.values()) - plain_sum(most[node] * place[node] for node in place if node in full)
        speed = plain_sum(gpus * rates[node] for node, gpus in place.items() if node not in full)
        share = {node: most[node] if node in full else spare * rates[node] / speed for node in place}
        above = {
            node
            for node, batches in share.items()
            if node not in full and batches > most[node] * (1 + ROUNDING)
        }
        if not above:
            return share
        full |= above
