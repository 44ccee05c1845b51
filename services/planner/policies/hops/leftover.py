"""Which running jobs keep GPUs that a first plan leaves idle: docs/adr/0051. Pure.

The jobs that the plan does not place are gone through in the order of the queue. This foresees what the
fragment plan after it would do:

- A job that runs behind the window keeps its GPUs, if nobody has taken them. But if another place that is
  left is worth more to it, the job is stopped, and that place is kept free for it.
- For any other job the fewest GPUs with which it can run are kept free.

A place is worth its GPUs · the job's samples/s on one GPU of the type. Any but the present place is worth
less by the share of a round that a restart takes. Only for jobs of the window were throughputs estimated.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence

import msgspec

from schemas.ids import GpuType, JobId
from schemas.placement import Configuration
from services.planner.policies.contract.configurations import configurations_for, possible_counts
from services.planner.policies.contract.pools import PlaceRules
from services.planner.policies.contract.view import ViewJob, ViewNode

LossOf = Callable[[ViewJob, GpuType], float]
"""share of a round that a job loses by a restart on a type"""


class Leftover:
    """The GPUs that a plan leaves idle."""

    def __init__(
        self, nodes: Sequence[ViewNode], taken: Sequence[Configuration], threshold: float, rules: PlaceRules
    ) -> None:
        """`taken`: the places of the plan. `threshold`, `rules`: as in `configurations_for`."""
        self._nodes = list(nodes)
        self._at = {node.node_id: index for index, node in enumerate(nodes)}
        self._threshold, self._rules = threshold, rules
        self._nowhere: set[tuple[object, ...]] = set()
        """demands, types and sensitivities of jobs that fit nowhere; idle GPUs only become fewer"""
        for place in taken:
            self.take(place)

    def has(self, place: Configuration) -> bool:
        return all(
            node_id in self._at and self._nodes[self._at[node_id]].idle >= gpus
            for node_id, gpus in place.items()
        )

    def take(self, place: Configuration) -> None:
        for node_id, gpus in place.items():
            node = self._nodes[self._at[node_id]]
            self._nodes[self._at[node_id]] = msgspec.structs.replace(node, idle=node.idle - gpus)

    def worth(self, job: ViewJob, place: Configuration) -> float:
        """What a place is worth to a job that has it."""
        kinds = [(self._nodes[self._at[node_id]].gpu_type, gpus) for node_id, gpus in place.items()]
        return sum(gpus * job.single_gpu.get(gpu_type, 0.0) for gpu_type, gpus in kinds)

    def counts(self, job: ViewJob) -> Mapping[GpuType, Sequence[int]]:
        """The GPU counts that the job could have, ascending, by type."""
        wish = job.demand, job.gpu_types, job.sensitivity
        if wish in self._nowhere:
            return {}
        found = possible_counts(job, self._nodes, self._threshold, self._rules)
        if not found:
            self._nowhere.add(wish)
        return found

    def place(self, job: ViewJob, gpu_type: GpuType, gpus: int) -> Configuration:
        """A place of that many GPUs; empty: there is none."""
        one = msgspec.structs.replace(job, demand=(gpus,), gpu_types=(gpu_type,))
        offered = configurations_for([one], self._nodes, self._threshold, rules=self._rules)
        return offered.at(0) if len(offered) else {}


def left_in_place(
    queue: Sequence[ViewJob], behind: Container[JobId], left: Leftover, loss_of: LossOf
) -> Iterator[ViewJob]:
    """The running jobs that stay; the GPUs of each are taken from `left`.

    `queue`: the jobs that the plan does not place; `behind`: those that are behind the window.
    """

    def kept(job: ViewJob) -> Configuration:
        """The GPUs that the job may keep; empty: none."""
        if job.present is None or job.job_id not in behind:
            return {}
        here = job.present.gang.configuration
        return here if left.has(here) else {}

    last = max((index for index, job in enumerate(queue) if kept(job)), default=-1)
    for job in queue[: last + 1]:
        counts, here = left.counts(job), kept(job)
        best = max(_worths(job, counts, loss_of), default=None) if here else None
        if best is not None and best[0] > left.worth(job, here):
            left.take(left.place(job, *best[1:]))
        elif here:
            left.take(here)
            yield job
        elif counts:
            gpus, gpu_type = min((own[0], gpu_type) for gpu_type, own in counts.items())
            left.take(left.place(job, gpu_type, gpus))


def _worths(
    job: ViewJob, counts: Mapping[GpuType, Sequence[int]], loss_of: LossOf
) -> Iterator[tuple[float, GpuType, int]]:
    """What the largest place on each type is worth, with the type and its GPUs."""
    for gpu_type, own in counts.items():
        kept = 1.0 - loss_of(job, gpu_type)
        yield own[-1] * job.single_gpu.get(gpu_type, 0.0) * kept, gpu_type, own[-1]
