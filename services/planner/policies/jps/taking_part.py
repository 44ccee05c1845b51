"""Which jobs take part in a reset, and how many GPUs they can use together. Pure.

The paper assumes at least as many workers as jobs. Here jobs are admitted in the order of their submission,
each with its smallest demand; a job for which its types have no room left waits.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from ortools.graph.python.max_flow import SimpleMaxFlow

Kinds = frozenset[int]
"""positions of the types that a job can run on"""
Need = tuple[Kinds, int]
"""a number of GPUs, of any of these types"""


def taking_part(needs: Sequence[Need], supply: Sequence[int]) -> list[int]:
    """Positions of the jobs that have room beside those admitted before them; gangs may mix types."""
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
    """How many of the GPUs that jobs need can be given to them at once; gangs may mix types."""
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
