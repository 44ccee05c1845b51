"""A world of measured speeds, as the simulator of JPS has it; none is computed from GPUs and models.

    iteration = max over GPUs of (samples taken / samples a second) + l_c · B / Π        (JPS, eq. 2, 3, 7)
    l_c = 2 (K − 1) / K · gradients / r                                                  (JPS, eq. 6)

with B samples in an iteration, Π in an epoch, K GPUs, and r the rate of the slowest link between two of
them. The paper charges one exchange per epoch (law `epoch`), while real training has one per iteration. A
cluster file gives the bandwidth of an all-reduce, which is r / 2.
"""

from collections.abc import Hashable, Sequence

from loadgen.draws import generator
from loadgen.world.rotas import in_turn, rates
from loadgen.world.switching import switch_s
from schemas.calibration import Ring
from schemas.catalogue import CatalogueFile, Speeds
from schemas.cluster import Node
from schemas.jobs import JobSpec, Workload
from schemas.measurements import Measured, Stretch
from schemas.placement import Gang, Lockstep, Mode, Proportional, Relaxed
from schemas.settings import Switching
from services.agent.work.world import DoesNotFit
from shared.domain import gangs
from shared.domain.catalogue import InvalidCatalogue
from shared.domain.iteration import BYTES_PER_PARAMETER
from shared.domain.rota import Turn
from shared.runtime.error_wording import listed

FORWARD_SHARE = 1.0 / 3.0
"""share of an iteration without an exchange: a backward pass does twice the work of a forward pass"""


class TableWorld:
    """Implements `services.agent.work.world.World`. Running jobs have no noise."""

    modes: frozenset[type[Mode]] = frozenset({Lockstep, Proportional, Relaxed})

    def __init__(self, seed: int, catalogue: CatalogueFile, switching: Switching = "hare") -> None:
        """`seed`: for drawing the errors of profiles. Raises InvalidCatalogue if there are no speeds."""
        if not catalogue.speeds:
            raise InvalidCatalogue("$.speeds", "the world `table` needs speeds, and there are none")
        self._seed = seed
        self._switching = switching
        self._speeds = {(row.model, row.dataset, row.batch): row for row in catalogue.speeds}
        self.workloads = tuple(sorted({f"{row.model} on {row.dataset}" for row in catalogue.speeds}))

    def stretch(
        self,
        spec: JobSpec,
        nodes: Sequence[Node],
        gang: Gang,
        *,
        key: str,  # noqa: ARG002 - nothing is drawn
        index: int,  # noqa: ARG002 - as above
    ) -> Stretch:
        """Raises DoesNotFit."""
        speeds, batch_size = self._speeds_of(spec.workload), spec.workload.batch_size
        rates = [_rate(speeds, node) for node in nodes]
        pairs = [(node, one.gpus) for node, one in zip(nodes, gang.members, strict=True)]
        share = _exchanges(speeds, spec, gangs.global_batch(gang, batch_size))
        exchange_s = share * exchange_time_s(pairs, BYTES_PER_PARAMETER * speeds.parameters)
        return Stretch(throughput=gangs.throughput(gang, rates, batch_size, exchange_s), data_s={}, wait_s={})

    def alike(self, spec: JobSpec) -> Hashable:
        return spec.workload, _epoch(spec)

    def rota(
        self,
        jobs: Sequence[tuple[JobSpec, Gang]],
        nodes: Sequence[Node],
        *,
        key: str,  # noqa: ARG002 - nothing is drawn
        index: int,  # noqa: ARG002 - as above
    ) -> tuple[float, ...]:
        """Raises DoesNotFit."""
        turns = [self._turn(spec, nodes, sync) for spec, sync in in_turn(jobs)]
        return rates([(spec.workload, gang) for spec, gang in jobs], turns)

    def _turn(self, spec: JobSpec, nodes: Sequence[Node], sync: Relaxed) -> Turn:
        speeds, batch_size = self._speeds_of(spec.workload), spec.workload.batch_size
        used = [(node, one) for node, one in zip(nodes, sync.tasks, strict=True) if any(one)]
        pairs = [(node, len(one) - one.count(0)) for node, one in used]
        busy_s = [
            tasks * batch_size / _rate(speeds, node) if tasks else 0.0
            for node, one in zip(nodes, sync.tasks, strict=True)
            for tasks in one
        ]
        share = _exchanges(speeds, spec, sum(map(sum, sync.tasks)) * batch_size)
        return Turn(
            busy_s=[busy_s],
            exchange_s=share * exchange_time_s(pairs, BYTES_PER_PARAMETER * speeds.parameters),
            switch_s=self.switch_s(spec),
            rounds=sync.turns,
        )

    def switch_s(self, spec: JobSpec) -> float:
        return switch_s(spec.workload, self._switching)

    def profile(self, spec: JobSpec, node: Node, *, iterations: int, key: str) -> Measured:
        """Raises DoesNotFit."""
        speeds = self._speeds_of(spec.workload)
        drawn = generator(self._seed, "profile", key).uniform(-1.0, 1.0)
        rate = _rate(speeds, node) * (1.0 + speeds.profile_error * drawn)
        iteration_s = spec.workload.batch_size / rate
        return Measured(
            data_s=(0.0,) * iterations,
            forward_s=(FORWARD_SHARE * iteration_s,) * iterations,
            backward_s=(iteration_s - FORWARD_SHARE * iteration_s,) * iterations,
            update_s=(0.0,) * iterations,
            iteration_s=(iteration_s,) * iterations,
            parameters=speeds.parameters,
            memory_share=0.0,
        )

    def all_reduce(self, ring: Ring, *, size: float, repeats: int, key: str) -> tuple[float, ...]:  # noqa: ARG002
        return (exchange_time_s(ring.members, size),) * repeats

    def _speeds_of(self, workload: Workload) -> Speeds:
        what = workload.model, workload.dataset
        found = self._speeds.get((*what, workload.batch_size)) or self._speeds.get((*what, None))
        if found is None:
            batches = [str(row.batch) for row in self._speeds.values() if _is(row, what)]
            known = f"batches of {listed(batches)}" if batches else "; ".join(self.workloads)
            batch = f" with batch {workload.batch_size}" if batches else ""
            raise DoesNotFit(f"no speeds of {what[0]} on {what[1]}{batch}; there are those of {known}")
        return found


def _is(row: Speeds, what: tuple[str, str]) -> bool:
    return (row.model, row.dataset) == what


def _exchanges(speeds: Speeds, spec: JobSpec, samples: int) -> float:
    """The number of exchanges that are charged for training `samples`."""
    if speeds.exchange == "iteration":
        return 1.0
    return samples / _epoch(spec)


def _epoch(spec: JobSpec) -> float:
    """Samples of an epoch; a job that does not say has one."""
    return spec.workload.dataset_samples or spec.samples


def exchange_time_s(members: Sequence[tuple[Node, int]], size: float) -> float:
    """l_c (6), seconds; `members`: nodes with their GPUs; `size`: of the gradients, bytes."""
    gpus = sum(count for _, count in members)
    if len(members) == 1:
        bandwidth = members[0][0].link_bandwidth
    else:
        bandwidth = min(node.network_bandwidth for node, _ in members)
    return (gpus - 1) / gpus * size / bandwidth


def _rate(speeds: Speeds, node: Node) -> float:
    try:
        return speeds.rates[node.gpu_type]
    except KeyError:
        what = f"{speeds.model} on {speeds.dataset}"
        raise DoesNotFit(f"no speed of {what} on {node.gpu_type}") from None
