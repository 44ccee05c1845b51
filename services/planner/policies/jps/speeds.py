"""How fast jobs are on their gangs, by either law of communication (see `completion`). Pure.

iteration    as estimated; without an estimate B / (max over GPUs of s / ρ + exchange)
epoch        Λ = left · (1 / Σ ρ + l_c / Π)                                        (7), (13)

B is the global batch, s the samples of one GPU in it, l_c the seconds of an exchange.
"""

import math
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from schemas.ids import JobId, NodeId
from schemas.placement import Configuration, Gang, Proportional
from schemas.plans import Layer
from services.planner.policies.contract.configurations import Configurations, listed
from services.planner.policies.contract.estimates import Estimated
from services.planner.policies.contract.view import ViewJob, ViewNode
from services.planner.policies.jps.completion import Law, completion_s, isolated_s
from services.planner.policies.jps.scene import Scene
from services.planner.policies.jps.shares import shared_by_speed
from services.planner.policies.kit.exchange import exchange_s
from shared.domain import gangs
from shared.domain.sums import plain_sum

AskedGang = tuple[int, Gang]
"""the position of a job, and a gang of it"""
Answers = Mapping[AskedGang, tuple[float, Layer]]
"""samples/s and their layer, by gang"""


class GangSpeeds(msgspec.Struct, frozen=True, kw_only=True):
    """The speeds of the jobs of a scene."""

    scene: Scene
    law: Law
    equal: bool
    """whether GPUs have equal shares of the global batch, whatever their speeds"""
    share_max: float
    """the most samples of a GPU in an iteration, in batches"""
    rates: tuple[Mapping[NodeId, float], ...]
    """by job: samples/s of one GPU, by node"""
    paths: Mapping[NodeId, tuple[float, float]]
    """by node: bandwidths inside it and between it and others, bytes/s"""
    between_nodes: float
    """the least bandwidth between nodes"""
    modes: Mapping[NodeId, tuple[str, ...]]
    """by node: the modes in which it runs gangs"""

    def gang(self, job: int, place: Configuration) -> Gang:
        """The gang of a job on a place: with shares by speed where nodes and job can, else in lockstep."""
        seen = self.scene.jobs[job]
        able = all(Proportional.tag() in self.modes[node] for node in place)
        runs = able and not seen.lacks({Proportional})
        if self.equal or not runs or len(place) == 1:
            return Gang.of(place)
        most = {node: self._most(seen, node) for node in place}
        return shared_by_speed(place, self.rates[job], seen.batch_size, most=most)

    def _most(self, job: ViewJob, node: NodeId) -> float:
        """The most batches that a GPU of the node may take: by `share_max`, and as measured to fit."""
        known = job.batch_most.get(self.scene.type_of[node], job.batch_size)
        return min(self.share_max, known / job.batch_size)

    def completion_s(self, job: int, gang: Gang, answers: Answers) -> float:
        """Λ of the job on a gang: seconds to its end."""
        left = float(self.scene.left[job])
        if self.law == "epoch":
            epochs = left / self._epoch(job)
            return completion_s(left, self._summed(job, gang), epochs, self._exchange_s(job, gang))
        return left / self.throughput(job, gang, answers)[0]

    def throughput(self, job: int, gang: Gang, answers: Answers) -> tuple[float, Layer]:
        """The job's samples/s on a gang, and the layer of this figure."""
        seen = self.scene.jobs[job]
        each_s = self._exchange_s(job, gang)
        if self.law == "epoch":
            each_s *= gangs.global_batch(gang, seen.batch_size) / self._epoch(job)
        elif (job, gang) in answers:
            return answers[job, gang]
        rates = [self.rates[job][node] for node in gang.nodes]
        return gangs.throughput(gang, rates, seen.batch_size, each_s), Layer.THEORY

    def isolated_s(self, job: int) -> float:
        """Λe: seconds to the job's end, if it is alone with 1/S of each GPU."""
        scene, seen = self.scene, self.scene.jobs[job]
        left, share = float(scene.left[job]), 1.0 / len(scene.jobs)
        own = float(scene.supply.sum()) * share
        each_s = exchange_s(seen.gradient_bytes, own, self.between_nodes)
        exchanges = left / (self._epoch(job) if self.law == "epoch" else seen.batch_size * own)
        return isolated_s(left, float(scene.rate[job] @ scene.supply), share, exchanges, each_s)

    def spread_s(self, job: int, gpus: int, speed: float, *, inside: NodeId | None = None) -> float:
        """Λ on `gpus` GPUs that together do `speed` samples/s, on the node `inside` or on several nodes."""
        seen, left = self.scene.jobs[job], float(self.scene.left[job])
        bandwidth = self.between_nodes if inside is None else self.paths[inside][0]
        each_s = exchange_s(seen.gradient_bytes, gpus, bandwidth)
        exchanges = left / (self._epoch(job) if self.law == "epoch" else seen.batch_size * gpus)
        return completion_s(left, speed, exchanges, each_s)

    def _epoch(self, job: int) -> float:
        """Π: samples of an epoch; a job without epochs counts as one epoch."""
        seen = self.scene.jobs[job]
        return seen.epoch_samples or seen.samples

    def _summed(self, job: int, gang: Gang) -> float:
        """V (13): samples/s of the gang's GPUs. With equal or limited shares the slowest GPU decides."""
        rates = [self.rates[job][one.node] for one in gang.members]
        if not isinstance(gang.sync, Proportional):
            return gang.gpus * min(rates)
        if self._is_held(job, gang, gang.sync):
            return gangs.throughput(gang, rates, self.scene.jobs[job].batch_size)
        return plain_sum(one.gpus * rate for one, rate in zip(gang.members, rates, strict=True))

    def _is_held(self, job: int, gang: Gang, shares: Proportional) -> bool:
        """Whether some GPU takes the most samples that it may."""
        seen = self.scene.jobs[job]
        pairs = zip(gang.members, shares.samples, strict=True)
        return any(
            samples >= math.floor(one.gpus * seen.batch_size * self._most(seen, one.node))
            for one, samples in pairs
        )

    def _exchange_s(self, job: int, gang: Gang) -> float:
        paths = [self.paths[node] for node in gang.nodes]
        slowest = min(between for _, between in paths) if gang.distributed else paths[0][0]
        return exchange_s(self.scene.jobs[job].gradient_bytes, gang.gpus, slowest)


def speeds(scene: Scene, *, law: Law, equal: bool, share_max: float) -> GangSpeeds:
    return GangSpeeds(
        scene=scene,
        law=law,
        equal=equal,
        share_max=share_max,
        rates=tuple(scene.rates(job) for job in range(len(scene.jobs))),
        paths={node.node_id: (node.link_bandwidth, node.network_bandwidth) for node in scene.nodes},
        between_nodes=min((node.network_bandwidth for node in scene.nodes), default=math.inf),
        modes={node.node_id: node.modes for node in scene.nodes},
    )


def question(
    jobs: Sequence[ViewJob], asked: Sequence[AskedGang], nodes: Sequence[ViewNode]
) -> Configurations:
    """The configurations of these gangs, with their shares. The gangs of a job come one after the other."""
    places: dict[JobId, list[Configuration]] = {}
    for job, gang in asked:
        places.setdefault(jobs[job].job_id, []).append(gang.configuration)
    samples = [share for _, gang in asked for share in _samples(gang)]
    rows = listed(list(places.items()), nodes)
    return msgspec.structs.replace(rows, samples=np.array(samples, dtype=np.int32))


def _samples(gang: Gang) -> tuple[int, ...]:
    """Samples of an iteration by member; 0: a batch on every GPU."""
    return gang.sync.samples if isinstance(gang.sync, Proportional) else (0,) * len(gang.members)


def answers(
    asked: Sequence[AskedGang], wanted: Configurations, estimates: Estimated
) -> dict[AskedGang, tuple[float, Layer]]:
    """The estimates by gang. `asked`: the gangs in the order of the rows of `wanted`."""
    assert len(asked) == len(wanted), "the rows of the same view"
    throughput = estimates.throughput.tolist()
    return {
        each: (throughput[row], estimates.layer_at(row))
        for row, each in enumerate(asked)
        if throughput[row] > 0
    }
