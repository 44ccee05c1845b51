"""A world made from what another stack has learnt: jobs run as fast as its estimator would predict.

Observed speeds count, and theory where nothing was observed; only loading times are drawn. So a simulation
says what another policy, or another cluster of the same GPU types, would do with these jobs.
"""

from collections.abc import Hashable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from loadgen.draws import generator
from schemas.archive import lines_of
from schemas.calibration import Ring
from schemas.cluster import Node
from schemas.jobs import JobSpec, Workload
from schemas.measurements import DataMode, Measured, Stretch
from schemas.placement import Gang, Lockstep, Mode, Proportional
from services.agent.work.world import DoesNotFit
from services.estimator.recall import Recall, UnreadableExport, recalled
from shared.domain.iteration import iteration_s
from shared.runtime.files import InvalidFile


class LearntWorld:
    """Implements `services.agent.work.world.World`."""

    modes: frozenset[type[Mode]] = frozenset({Lockstep, Proportional})

    def __init__(self, known: Recall, seed: int) -> None:
        """`seed`: for drawing loading times."""
        self._known = known
        self._seed = seed
        self.workloads = tuple(sorted({f"{one.model} on {one.dataset}" for one in known.workloads()}))

    @classmethod
    def of_file(cls, path: str, *, seed: int) -> "LearntWorld":
        """The world of an export of a store. Raises InvalidFile."""
        if not path:
            raise InvalidFile("learnt_from", None, None, "the world `learnt` needs an export of a store")
        try:
            with Path(path).open("rb") as file:
                return cls(recalled(lines_of(file)), seed)
        except OSError as error:
            raise InvalidFile(path, None, None, error.strerror or str(error)) from None
        except UnreadableExport as error:
            raise InvalidFile(path, error.line, None, str(error)) from None

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
        throughput = self._known.throughput(spec.workload, nodes, gang)
        if not throughput > 0:
            raise _unknown(spec.workload, nodes)
        return Stretch(throughput=throughput, data_s={}, wait_s={})

    def alike(self, spec: JobSpec) -> Hashable:
        return spec.workload

    def rota(
        self, jobs: Sequence[tuple[JobSpec, Gang]], nodes: Sequence[Node], *, key: str, index: int
    ) -> tuple[float, ...]:
        """Raises NotImplementedError: as `switch_s`."""
        raise NotImplementedError(f"{len(jobs)} jobs on {len(nodes)} nodes: not measured")

    def switch_s(self, spec: JobSpec) -> float:
        """Raises NotImplementedError: a store does not have it, and gangs in these modes do not need it."""
        raise NotImplementedError(f"{spec.workload.model}: not measured")

    def profile(self, spec: JobSpec, node: Node, *, iterations: int, key: str) -> Measured:
        """Raises DoesNotFit."""
        modules = self._known.modules(spec.workload, node.gpu_type)
        if modules is None:
            raise _unknown(spec.workload, [node])
        data_s = _drawn(modules.data, iterations, generator(self._seed, "profile", key))
        took_s = iteration_s(
            data_s=data_s,
            forward_s=modules.forward_s,
            backward_s=modules.backward_s,
            update_s=modules.update_s,
            pattern=modules.pattern,
        )
        return Measured(
            data_s=tuple(data_s.tolist()),
            forward_s=(modules.forward_s,) * iterations,
            backward_s=(modules.backward_s,) * iterations,
            update_s=(modules.update_s,) * iterations,
            iteration_s=tuple(took_s.tolist()),
            parameters=modules.parameters,
            memory_share=modules.memory_share,
        )

    def all_reduce(self, ring: Ring, *, size: float, repeats: int, key: str) -> tuple[float, ...]:  # noqa: ARG002
        return (self._known.all_reduce_s(ring, size),) * repeats


def _drawn(modes: Sequence[DataMode], count: int, random: np.random.Generator) -> npt.NDArray[np.float64]:
    """T_d of `count` iterations, seconds (Hops eq. 3)."""
    shares = np.array([mode.probability for mode in modes])
    which = random.choice(len(modes), size=count, p=shares / shares.sum())
    mean_s = np.array([mode.mean_s for mode in modes])[which]
    std_s = np.array([mode.std_s for mode in modes])[which]
    return np.maximum(mean_s + std_s * random.standard_normal(count), 0.0)


def _unknown(workload: Workload, nodes: Sequence[Node]) -> DoesNotFit:
    types = " and ".join(dict.fromkeys(node.gpu_type for node in nodes))
    return DoesNotFit(f"the store has nothing about {workload.model} on {workload.dataset} on {types}")
