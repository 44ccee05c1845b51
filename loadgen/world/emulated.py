"""The emulated world as agents see it: a pure function of its seed and of the question."""

from collections.abc import Hashable, Sequence
from functools import lru_cache

import numpy as np

from loadgen.catalogue.specs import Catalogue, catalogue_with
from loadgen.catalogue.timing import memory_bytes
from loadgen.draws import generator
from loadgen.world.communication import all_reduce_s
from loadgen.world.gang import ProcessTimes, Vector, timing
from loadgen.world.iterations import NO_EXCHANGE, STEP_NOISE, Exchange, draw, draw_busy, draw_rounds
from loadgen.world.rotas import in_turn, rates
from loadgen.world.servers import traits
from loadgen.world.structure import PLAIN, Structure
from loadgen.world.switching import switch_s
from schemas.calibration import Ring
from schemas.catalogue import NOTHING_MORE, CatalogueFile
from schemas.cluster import Node
from schemas.jobs import JobSpec, Workload
from schemas.measurements import Measured, Stretch
from schemas.placement import Gang, Lockstep, Mode, Proportional, Relaxed
from schemas.settings import Switching
from shared.domain import gangs
from shared.domain.rota import Turn

STRETCH_DRAWS = 512
"""number of data times, processes × iterations, that are drawn for a stretch of running"""
ROUNDS_DRAWN = 24
"""number of rounds that are drawn for a job in a rota, at most; later cycles repeat them"""
ITERATIONS = range(32, 129)
"""limits of the number of iterations that are drawn"""
REPORTED_ITERATIONS = 8

_Times = tuple[list[list[float]], list[list[float]], float]
"""T_d and T_w of some iterations by node, and the mean time of an iteration"""


class EmulatedWorld:
    """Implements `services.agent.work.world.World`. Has no state beside its arguments."""

    modes: frozenset[type[Mode]] = frozenset({Lockstep, Proportional, Relaxed})

    def __init__(
        self,
        seed: int,
        catalogue: CatalogueFile = NOTHING_MORE,
        switching: Switching = "hare",
        structure: Structure = PLAIN,
    ) -> None:
        """`catalogue`: entries beside the shipped ones. Raises InvalidCatalogue."""
        self._seed = seed
        self._switching = switching
        self._structure = structure
        self._catalogue = catalogue_with(catalogue)
        self.workloads: tuple[str, ...] = self._catalogue.workloads

    def stretch(self, spec: JobSpec, nodes: Sequence[Node], gang: Gang, *, key: str, index: int) -> Stretch:
        """Raises DoesNotFit."""
        random = generator(self._seed, "stretch", key, index)
        batches = gangs.batches(gang, spec.workload.batch_size)
        match gang.sync:
            case Relaxed(tasks=tasks):
                drawn = self._relaxed(spec, nodes, tasks, random)
            case _:
                drawn = self._exchanging(spec, nodes, batches, random)
        data_s, wait_s, mean_s = drawn
        return Stretch(
            throughput=sum(map(sum, batches)) / mean_s,
            data_s={node.node_id: tuple(times) for node, times in zip(nodes, data_s, strict=True)},
            wait_s={node.node_id: tuple(times) for node, times in zip(nodes, wait_s, strict=True)},
        )

    def alike(self, spec: JobSpec) -> Hashable:
        return spec.workload, self._structure.bucket_of(spec.name)

    def _exchanging(
        self, spec: JobSpec, nodes: Sequence[Node], batches: gangs.Batches, random: np.random.Generator
    ) -> _Times:
        """Every process computes a batch, then all exchange gradients. `batches`: samples by node and GPU."""
        parts = timing(self._catalogue, self._seed, spec.workload, tuple(nodes), batches)
        ring = [(node, len(taken)) for node, taken in zip(nodes, batches, strict=True)]
        exchange_s = self._exchange_s(ring, parts, spec, random)
        size, bucket = parts.model.gradient_bytes, self._structure.bucket_of(spec.name)
        exchange = Exchange(
            seconds=exchange_s,
            tail=min(bucket / size, 1.0),
            head=self._structure.head,
            slowed=self._structure.slowed_backward,
        )
        strained = self._structure.strained(parts, ring, random)
        drawn = draw(strained, exchange, _iterations(len(parts.node)), random, inputs=self._structure.inputs)
        return _reported(drawn.data_s, parts), _reported(drawn.wait_s, parts), _mean(drawn.iteration_s)

    def _relaxed(
        self,
        spec: JobSpec,
        nodes: Sequence[Node],
        tasks: tuple[tuple[int, ...], ...],
        random: np.random.Generator,
    ) -> _Times:
        """Every process does its tasks one after another, then those that have any exchange gradients."""
        each = tuple((spec.workload.batch_size,) * len(one) for one in tasks)
        parts = timing(self._catalogue, self._seed, spec.workload, tuple(nodes), each)
        ring = [(node, len(one) - one.count(0)) for node, one in zip(nodes, tasks, strict=True)]
        exchange_s = self._exchange_s(ring, parts, spec, random)
        count = [number for one in tasks for number in one]
        strained = self._structure.strained(parts, ring, random)
        iterations = _iterations(len(parts.node))
        drawn = draw_rounds(strained, count, exchange_s, iterations, random, inputs=self._structure.inputs)
        return _reported(drawn.data_s, parts), _reported(drawn.wait_s, parts), _mean(drawn.round_s)

    def _exchange_s(
        self,
        ring: Sequence[tuple[Node, int]],
        parts: ProcessTimes,
        spec: JobSpec,
        random: np.random.Generator,
    ) -> float:
        size = parts.model.gradient_bytes
        return self._structure.exchange_s(ring, size, parts.paths, random.random(), spec.name)

    def rota(
        self, jobs: Sequence[tuple[JobSpec, Gang]], nodes: Sequence[Node], *, key: str, index: int
    ) -> tuple[float, ...]:
        """Raises DoesNotFit."""
        works = tuple([(spec.workload, gang) for spec, gang in jobs])
        return _rota(
            self._catalogue,
            self._seed,
            self._switching,
            self._structure,
            works=works,
            names=tuple([spec.name for spec, _ in jobs]),
            nodes=tuple(nodes),
            key=key,
            index=index,
        )

    def switch_s(self, spec: JobSpec) -> float:
        return switch_s(spec.workload, self._switching)

    def profile(self, spec: JobSpec, node: Node, *, iterations: int, key: str) -> Measured:
        """Raises DoesNotFit."""
        parts = timing(self._catalogue, self._seed, spec.workload, (node,), ((spec.workload.batch_size,),))
        random = generator(self._seed, "profile", key)
        strained = self._structure.strained(parts, [(node, 1)], random)
        drawn = draw(strained, NO_EXCHANGE, iterations, random, inputs=self._structure.inputs)
        taken = memory_bytes(parts.model, spec.workload.batch_size)
        return Measured(
            data_s=tuple(drawn.data_s[0].tolist()),
            forward_s=tuple(drawn.forward_s[0].tolist()),
            backward_s=tuple(drawn.backward_s[0].tolist()),
            update_s=(float(strained.update_s[0]),) * iterations,
            iteration_s=tuple(drawn.iteration_s.tolist()),
            parameters=parts.model.parameters,
            memory_share=taken / self._catalogue.gpu_of(node.gpu_type).memory,
        )

    def all_reduce(self, ring: Ring, *, size: float, repeats: int, key: str) -> tuple[float, ...]:
        """Seconds of each repetition; noise and other jobs' share of the network are drawn for each."""
        random = generator(self._seed, "all-reduce", key)
        paths = [traits(self._seed, node.node_id).network for node, _ in ring.members]
        draws = zip(random.random(repeats).tolist(), random.standard_normal(repeats).tolist(), strict=True)
        return tuple(
            all_reduce_s(ring.members, size, paths, rivals, protocols=self._structure.protocols)
            * (1.0 + STEP_NOISE * abs(noise))
            for rivals, noise in draws
        )


def _iterations(processes: int) -> int:
    """The number of iterations to draw."""
    return min(max(STRETCH_DRAWS // processes, ITERATIONS[0]), ITERATIONS[-1])


def _reported(times_s: Vector, parts: ProcessTimes) -> list[list[float]]:
    """The first of the times, of each node's first process."""
    reported: list[list[float]] = times_s[:, :REPORTED_ITERATIONS].take(parts.reporters, axis=0).tolist()
    return reported


def _mean(times_s: Vector) -> float:
    return float(np.add.reduce(times_s) / len(times_s))


@lru_cache(maxsize=256)
def _rota(
    catalogue: Catalogue,
    seed: int,
    switching: Switching,
    structure: Structure,
    *,
    works: tuple[tuple[Workload, Gang], ...],
    names: tuple[str, ...],
    nodes: tuple[Node, ...],
    key: str,
    index: int,
) -> tuple[float, ...]:
    """Cached, since every node that leads a job of the rota asks for it. Raises DoesNotFit."""
    turns = []
    named = [((workload, name), gang) for (workload, gang), name in zip(works, names, strict=True)]
    for place, ((workload, name), sync) in enumerate(in_turn(named)):
        random = generator(seed, "rota", key, index, place)
        busy_s, exchange_s = _turn(
            catalogue, seed, structure, workload=workload, name=name, nodes=nodes, sync=sync, random=random
        )
        switching_s = switch_s(workload, switching)
        turns.append(Turn(busy_s=busy_s, exchange_s=exchange_s, switch_s=switching_s, rounds=sync.turns))
    return rates(works, turns)


def _turn(
    catalogue: Catalogue,
    seed: int,
    structure: Structure,
    *,
    workload: Workload,
    name: str,
    nodes: tuple[Node, ...],
    sync: Relaxed,
    random: np.random.Generator,
) -> tuple[list[list[float]], float]:
    """Seconds by round and GPU, 0 where the job has no task, and the seconds of an exchange."""
    used = [(node, one) for node, one in zip(nodes, sync.tasks, strict=True) if any(one)]
    count = [number for _, one in used for number in one if number]
    each = tuple((workload.batch_size,) * (len(one) - one.count(0)) for _, one in used)
    there = tuple(node for node, _ in used)
    parts = timing(catalogue, seed, workload, there, each)
    ring = [(node, len(taken)) for node, taken in zip(there, each, strict=True)]
    exchange_s = structure.exchange_s(ring, parts.model.gradient_bytes, parts.paths, random.random(), name)
    rounds = min(ROUNDS_DRAWN, max(STRETCH_DRAWS // len(count), 1))
    busy_s = np.zeros((rounds, sum(map(len, sync.tasks))))
    has_tasks = [number > 0 for one in sync.tasks for number in one]
    strained = structure.strained(parts, ring, random)
    busy_s[:, has_tasks] = draw_busy(strained, count, rounds, random, inputs=structure.inputs)
    return busy_s.tolist(), exchange_s
