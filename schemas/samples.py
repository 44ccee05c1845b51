"""Samples: frequent measurements, any of which may be lost."""

from schemas.base import Sample
from schemas.ids import Fingerprint, GpuType, JobId, NodeId, PlacementId
from schemas.numbers import Amount, GpuCount, PlainLine
from schemas.placement import Gang


class Heartbeat(Sample, frozen=True, kw_only=True, tag="heartbeat"):
    """An agent is alive; with what runs on its node."""

    life: PlainLine
    """the agent's life, as in its NodeJoined"""
    workers: tuple[PlacementId, ...]
    progress: dict[JobId, Amount] = {}
    """samples done so far by the jobs that this node leads"""
    troubles: tuple[PlainLine, ...] = ()
    """what its jobs wait for or lose because of the node, in words, such as a disk that does not answer"""


class ThroughputObserved(Sample, frozen=True, kw_only=True, tag="throughput"):
    """What a gang achieved on one of its nodes over a stretch of running."""

    fingerprint: Fingerprint
    job_id: JobId
    placement_id: PlacementId
    gpu_type: GpuType
    gpus_on_node: GpuCount
    gang: Gang
    seconds: Amount
    """length of the stretch"""
    throughput: Amount
    """samples/s per GPU"""
    data_s: tuple[Amount, ...] = ()
    """T_d of some iterations of the stretch"""
    wait_s: tuple[Amount, ...] = ()
    """T_w of the same iterations"""

    def senders(self) -> tuple[NodeId, ...]:
        """All nodes of the gang: its leader sends the samples of the others, too.

        Whether there is such a gang, the estimator knows.
        """
        return self.gang.nodes


Reading = Heartbeat | ThroughputObserved
