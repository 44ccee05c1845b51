"""The progress of a placement: the samples that each of its leaders has counted, and the job's sum. Pure.

A gang has one leader, or one for each of its copies (`gangs.leaders`). Placer, ledger and planner keep a
tally of the same facts, and so they agree on the samples of a job, and on which of its copies are gone.
"""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from schemas.events import Outcome, StartOrdered
from schemas.ids import NodeId
from schemas.placement import Gang
from shared.domain import gangs

ROUNDING = 1e-6
"""relative error from adding up samples in floats"""

WELL = frozenset({Outcome.CHECKPOINTED, Outcome.COMPLETED, Outcome.QUOTA})
"""outcomes of a worker that saved before it ended"""
NOTHING: Mapping[NodeId, float] = {}


class Course(StrEnum):
    RUNS = "runs"
    SAVED = "saved"
    """ended, and what it did is saved"""
    LOST = "lost"
    """ended, and what it did since its last checkpoint is lost"""


class Leader(msgspec.Struct, kw_only=True):
    """The progress of one leader. Samples are those of the whole job."""

    gpus: int
    """number of GPUs that it leads"""
    began: float
    """samples in the checkpoint that it began with"""
    done: float
    """samples in its newest checkpoint"""
    at: float
    """time of that checkpoint; of its start, while there is none"""
    course: Course = Course.RUNS

    def with_heard(self, samples: float) -> float:
        return max(self.done, samples) if self.course is Course.RUNS else self.done


class Tally(msgspec.Struct, kw_only=True):
    leaders: dict[NodeId, Leader] = {}
    copies: bool = False
    """whether each leader's part trains by itself, up to a share of the samples"""

    @classmethod
    def of(cls, gang: Gang, samples: float, at: float) -> "Tally":
        """The tally of a gang that begins with a checkpoint of `samples` samples."""
        leaders = {
            gangs.leader(part): Leader(gpus=part.gpus, began=samples, done=samples, at=at)
            for part in gangs.parts(gang)
        }
        return cls(leaders=leaders, copies=gangs.merges(gang))

    def order(self, order: StartOrdered) -> None:
        """Enter the order to a node; it counts only if the node leads."""
        if order.node_id in gangs.leaders(order.gang):
            done = order.samples_done
            self.leaders[order.node_id] = Leader(gpus=order.gang.gpus, began=done, done=done, at=order.at)
            self.copies = order.until is not None

    def restore(self, node: NodeId, samples: float) -> bool:
        """Count from the checkpoint found on disk, not the expected one; returns whether the node leads."""
        if leader := self.leaders.get(node):
            leader.began = leader.done = samples
        return leader is not None

    def begin(self, at: float) -> None:
        """Training begins: there is no newer checkpoint yet."""
        for leader in self.leaders.values():
            leader.at = at

    def count(self, node: NodeId, samples: float, at: float) -> bool:
        """Enter a checkpoint; returns whether it has more samples than the leader's last one."""
        leader = self.leaders.get(node)
        if leader is None:
            return False
        leader.at, more = at, samples > leader.done
        if more:
            leader.done = samples
        return more

    def end(self, node: NodeId, *, saved: bool) -> Leader | None:
        """End a leader whose worker has ended; None: it had ended before, or the node does not lead."""
        leader = self.leaders.get(node)
        if leader is None or leader.course is not Course.RUNS:
            return None
        leader.course = Course.SAVED if saved else Course.LOST
        return leader

    def is_over(self, node: NodeId) -> bool:
        """Whether the node led a part that has ended."""
        leader = self.leaders.get(node)
        return leader is not None and leader.course is not Course.RUNS

    @property
    def running(self) -> list[Leader]:
        return [leader for leader in self.leaders.values() if leader.course is Course.RUNS]

    @property
    def wasted(self) -> bool:
        """Whether all leaders are gone and none of them saved its work."""
        return bool(self.leaders) and all(leader.course is Course.LOST for leader in self.leaders.values())

    def merged(self, samples: float, heard: Mapping[NodeId, float] = NOTHING) -> float:
        """Samples that all leaders together have done of the job's `samples`; 0 without a leader.

        `heard`: samples by node that running leaders have reported since; they count if their checkpoints
        hold fewer. If copies began with unlike checkpoints, the smallest of these is what all copies have.
        """
        if len(self.leaders) == 1 and not self.copies:  # a copy's whole batches may exceed the job
            ((node, leader),) = self.leaders.items()
            return leader.with_heard(heard[node]) if node in heard else leader.done
        done = {node: leader.with_heard(heard.get(node, 0.0)) for node, leader in self.leaders.items()}
        base = min([leader.began for leader in self.leaders.values()], default=0.0)
        counts = [base + (done[node] - leader.began) for node, leader in self.leaders.items()]
        return gangs.merged(base, counts, samples)

    def by_copy(self) -> dict[NodeId, float]:
        """Samples that each copy did and saved, without copies that did none; empty: there are no copies."""
        if not self.copies:
            return {}
        done = {node: leader.done - leader.began for node, leader in self.leaders.items()}
        return {node: samples for node, samples in done.items() if samples > 0}

    def complete(self, samples: float) -> bool:
        return self.merged(samples) >= samples * (1.0 - ROUNDING)
