"""The emulated world as agents meet it: a pure function of its seed and of what it is asked."""

from loadgen.draws import generator
from loadgen.world.communication import all_reduce_s
from loadgen.world.gang import timing
from loadgen.world.iterations import STEP_NOISE, draw
from loadgen.world.servers import traits
from schemas.cluster import Node
from schemas.jobs import JobSpec
from services.agent.world import Gang, Measured, Stretch

STRETCH_DRAWS = 512
"""of data times, processes × iterations, that stand for a stretch of running"""
ITERATIONS = range(32, 129)
"""how few and how many iterations that may be"""
REPORTED_ITERATIONS = 8


class EmulatedWorld:
    """Implements `services.agent.world.World`. Holds nothing but its seed."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def stretch(self, spec: JobSpec, gang: Gang, *, key: str, index: int) -> Stretch:
        """Raises DoesNotFit."""
        parts = timing(self._seed, spec.workload, tuple(gang))
        random = generator(self._seed, "stretch", key, index)
        communication_s = all_reduce_s(gang, parts.model.gradient_bytes, parts.paths, random.random())
        processes = len(parts.node)
        iterations = min(max(STRETCH_DRAWS // processes, ITERATIONS[0]), ITERATIONS[-1])
        drawn = draw(parts, communication_s, iterations, random)
        data_s = drawn.data_s[:REPORTED_ITERATIONS, parts.first].T.tolist()
        wait_s = drawn.wait_s[:REPORTED_ITERATIONS, parts.first].T.tolist()
        return Stretch(
            throughput=processes * spec.workload.batch_size / float(drawn.iteration_s.mean()),
            data_s={node.node_id: tuple(times) for (node, _), times in zip(gang, data_s, strict=True)},
            wait_s={node.node_id: tuple(times) for (node, _), times in zip(gang, wait_s, strict=True)},
        )

    def profile(self, spec: JobSpec, node: Node, *, iterations: int, key: str) -> Measured:
        """Raises DoesNotFit."""
        parts = timing(self._seed, spec.workload, ((node, 1),))
        drawn = draw(parts, 0.0, iterations, generator(self._seed, "profile", key))
        return Measured(
            data_s=tuple(drawn.data_s[:, 0].tolist()),
            forward_s=tuple(drawn.forward_s[:, 0].tolist()),
            backward_s=tuple(drawn.backward_s[:, 0].tolist()),
            update_s=tuple(drawn.update_s[:, 0].tolist()),
            iteration_s=tuple(drawn.iteration_s.tolist()),
            parameters=parts.model.parameters,
        )

    def all_reduce(self, gang: Gang, *, size: float, repeats: int, key: str) -> tuple[float, ...]:
        """Each time another share of the network is taken by others, and the clock's grain shows."""
        random = generator(self._seed, "all-reduce", key)
        paths = [traits(self._seed, node.node_id).network for node, _ in gang]
        draws = zip(random.random(repeats).tolist(), random.standard_normal(repeats).tolist(), strict=True)
        return tuple(
            all_reduce_s(gang, size, paths, rivals) * (1.0 + STEP_NOISE * abs(noise))
            for rivals, noise in draws
        )
