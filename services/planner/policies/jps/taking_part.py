"""Which jobs take part in a reset, and how many GPUs they can use together. Pure.

The paper has at least as many workers as jobs. Here jobs come in the order of their submission, each with its
smallest demand, and one for which there is no room left on its types waits.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from ortools.graph.python.max_flow import SimpleMaxFlow

Kinds = frozenset[int]
"""the types that a job can run on, by position"""
Need = tuple[Kinds, int]
"""GPUs of some types"""


def taking_part(needs: Sequence[Need], supply: Sequence[int]) -> list[int]:
    """Positions of the jobs that have room beside those before them, types mixed."""
    found: list[int] = []
    total: Counter[Kinds] = Counter()
    refused: dict[Kinds, int] = {}
    for position, (kinds, gpus) in enumerate(needs):
        if gpus >= refused.get(kinds, gpus + 1):
            continue
        total[kinds] += gpus
        if placeable_gpus(total, supply) == sum(total.values()):
            found.append(position)
        else:
            total[kinds] -= gpus
            refused[kinds] = gpus
    return found


def placeable_gpus(needs: Mapping[Kinds, int], supply: Sequence[int]) -> int:
    """How many of these GPUs there are, types mixed as jobs may use them."""
    if len(needs) == 1:
        [(kinds, gpus)] = needs.items()
        return min(gpus, sum(supply[kind] for kind in kinds))
    flow = SimpleMaxFlow()
    source, sink = len(supply), len(supply) + 1
    for kind, gpus in enumerate(supply):
        flow.add_arc_with_capacity(kind, sink, gpus)
    for group, (kinds, gpus) in enumerate(needs.items(), start=sink + 1):
        flow.add_arc_with_capacity(source, group, gpus)
        for kind in kinds:
            flow.add_arc_with_capacity(group, kind, gpus)
    status = flow.solve(source, sink)
    assert status == flow.OPTIMAL, "the flow is of whole numbers below 2^31"
    return int(flow.optimal_flow())
