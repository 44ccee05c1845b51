"""The batch question and its answer, as numpy columns. Knows the bytes of `EstimateQuestion`."""

from collections.abc import Sequence

import msgspec
import numpy as np

from schemas.cluster import Node
from schemas.ids import Fingerprint
from schemas.placement import Gang
from schemas.questions import EstimateQuestion, Estimates
from services.estimator.store.table import Whole
from shared.domain import gangs
from shared.domain.iteration import Column

NO_WHOLE = np.empty(0, dtype=np.int64)


class UnreadableQuestion(ValueError):
    """The columns of a question do not fit together; the text says where."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Configurations to estimate, as compressed sparse rows (see `EstimateQuestion`)."""

    fingerprints: tuple[Fingerprint | None, ...]
    """fingerprint of each job; None: the job is not known"""
    nodes: tuple[Node | None, ...]
    job: Whole
    start: Whole
    node: Whole
    gpus: Whole
    samples: Whole = NO_WHOLE
    """samples of an iteration, by cell; 0 in all cells of a row: each GPU takes a batch. Empty: 0 in all
    rows"""


class Estimated(msgspec.Struct, frozen=True, kw_only=True):
    """Estimates, one row a configuration."""

    throughput: Column
    """samples/s of the whole configuration; NaN where nothing is known"""
    variance: Column
    count: Whole
    layer: Whole
    """index into `LAYERS`"""


def wanted(
    question: EstimateQuestion,
    fingerprints: tuple[Fingerprint | None, ...],
    nodes: tuple[Node | None, ...],
) -> Wanted:
    """The question's columns, checked. Raises UnreadableQuestion."""
    columns = {
        name: _whole(name, getattr(question, name)) for name in ("job", "start", "node", "gpus", "samples")
    }
    asked = Wanted(fingerprints=fingerprints, nodes=nodes, **columns)
    _check(asked)
    return asked


def of_gang(fingerprint: Fingerprint, nodes: Sequence[Node], gang: Gang, batch_size: int) -> Wanted:
    """The question about one gang of a workload. `nodes`: of the gang's members, in order."""
    unlike = not gangs.paced(gang)
    return Wanted(
        fingerprints=(fingerprint,),
        nodes=tuple(nodes),
        job=np.zeros(1, dtype=np.int64),
        start=np.array([0, len(nodes)]),
        node=np.arange(len(nodes)),
        gpus=np.array([one.gpus for one in gang.members]),
        samples=np.array(gangs.samples(gang, batch_size)) if unlike else NO_WHOLE,
    )


def estimates(answer: Estimated) -> Estimates:
    return Estimates(
        throughput=answer.throughput.astype("<f8").tobytes(),
        variance=answer.variance.astype("<f8").tobytes(),
        count=answer.count.astype("<i4").tobytes(),
        layer=answer.layer.astype("<u1").tobytes(),
    )


def _whole(name: str, data: bytes) -> Whole:
    if len(data) % 4:
        raise UnreadableQuestion(f"{name}: {len(data)} bytes are not a whole number of int32")
    return np.frombuffer(data, dtype="<i4").astype(np.int64)


def _check(asked: Wanted) -> None:
    if len(asked.start) != len(asked.job) + 1 or asked.start[0] != 0 or asked.start[-1] != len(asked.node):
        raise UnreadableQuestion(
            "start: one entry a configuration and one more, from 0 to the number of nodes"
        )
    if (np.diff(asked.start) < 1).any():
        raise UnreadableQuestion("start: every configuration has at least one node")
    if len(asked.gpus) != len(asked.node) or (asked.gpus < 1).any():
        raise UnreadableQuestion("gpus: one entry a node, at least 1")
    _check_samples(asked)
    _check_range("job", asked.job, len(asked.fingerprints))
    _check_range("node", asked.node, len(asked.nodes))


def _check_samples(asked: Wanted) -> None:
    if not len(asked.samples):
        return
    if len(asked.samples) != len(asked.node):
        raise UnreadableQuestion("samples: one entry a node, or none at all")
    enough = np.logical_and.reduceat(asked.samples >= asked.gpus, asked.start[:-1])
    none = np.logical_and.reduceat(asked.samples == 0, asked.start[:-1])
    if not (enough | none).all():
        raise UnreadableQuestion("samples: at least one a GPU, or 0 in all of a configuration")


def _check_range(name: str, column: Whole, length: int) -> None:
    if ((column < 0) | (column >= length)).any():
        raise UnreadableQuestion(f"{name}: an index outside 0 to {length - 1}")
