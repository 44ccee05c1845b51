"""Factors on theory, learnt from gangs of other shapes (docs/adr/0027). Pure but for the store.

What gangs of a shape showed on a GPU type is compared with what theory says of that shape now. With N GPUs:

    log(measured / theory) = β_w · x + error,    x = (1, over several nodes, log2 N, type, server)
    β_w ~ N(β, SPREAD²),  β ~ N(0, SPREAD²),  error ~ N(0, ERROR²)

A model of server has a column only where its type stands in several (see `hosts`). A workload that has not
run yet has β, what the others have in common; one that has run departs from β with every shape that it
showed; where nothing was observed at all, the factor exp(β_w · x) is 1. Of a workload w only A = XᵀX / ERROR²
and b = Xᵀy / ERROR² are needed. With M = (A + 1 / SPREAD²)⁻¹

    β   = (1 / SPREAD² + Σ ω·(A − A·M·A))⁻¹ · Σ ω·(b − A·M·b)     over the workloads that ran last
    β_w = β + M · (b − A·β)

A workload that runs at a fraction of what theory says, as one whose first minute was spent filling a cache,
says little about others. So ω is 1 for a workload whose k shapes are about as far from X·β as the model has
it, and falls with the square of the distance of one that is much farther:

    d² = (y − X·β)ᵀ · V⁻¹ · (y − X·β),  V = SPREAD² · X·Xᵀ + ERROR²,  on average k
    ω  = min(1, (FAR · √k / d)²)
"""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from schemas.ids import Fingerprint
from services.estimator.lookup.hosts import HostModel, Hosts, of_like_servers
from services.estimator.lookup.ideals import Ideals
from services.estimator.lookup.theory_table import TheoryTable
from services.estimator.store.contract import (
    WORKLOADS_IN_MEMORY,
    Evidence,
    Revision,
    Shape,
    Store,
    size_of,
)
from services.estimator.store.table import Whole
from shared.domain.iteration import Column

SPREAD = 0.05
"""standard deviation of a workload's coefficients from the common ones, and of those from 0"""
ERROR = 0.04
"""standard deviation of log(measured / theory) of one shape: servers of a model differ by some per cent"""
FACTOR_MOST = 3.0
"""largest factor on theory that is believed; the smallest is 1 / FACTOR_MOST"""
COMMON_WORKLOADS = 64
"""workloads, those that ran last, from which the common coefficients come"""
FAR = 3.0
"""times the usual distance from what workloads have in common, beyond which one counts less"""
STEPS_MOST = 8
"""times at most that β is solved for, each time with the weights that follow from the last; where the weights
have not settled by then, more would change β by some ten-thousandths"""
DIGITS = 9
"""significant digits that come out alike on every machine"""
SHAPE_COEFFICIENTS = 3
"""number of coefficients beside those of types and servers"""
SERVER_SPREADS = 2.0
"""standard deviation of a server model's coefficients, in units of SPREAD"""

Matrix = npt.NDArray[np.float64]


class GramTerms(msgspec.Struct, frozen=True):
    """What follows from x alone, for one workload."""

    gram: Matrix
    """A"""
    covariance: Matrix
    """M"""
    shrinkage: Matrix
    """A·M"""
    marginal_gram: Matrix
    """A − A·M·A"""


class SufficientStatistics(msgspec.Struct, frozen=True):
    """What one workload's gangs showed, as far as the coefficients depend on it."""

    terms: GramTerms
    moments: Column
    """b"""
    marginal_moments: Column
    """b − A·M·b"""
    shapes: int
    """k"""
    distance: float
    """d² where β is 0"""


class ObservedShape(NamedTuple):
    shape: Shape
    server: str
    """the model of the servers that showed it, where the type stands in several; else empty"""


class LookupContext(msgspec.Struct, frozen=True):
    """What a question's factors depend on, beside its workloads."""

    store: Store
    theory: TheoryTable
    hosts: Hosts

    @property
    def places(self) -> list[HostModel]:
        """The columns of x after those of shape: types, then models of server of types in several."""
        return [*((one, "") for one in sorted(self.theory.types)), *self.hosts.place]


class _Design(msgspec.Struct, frozen=True):
    """A workload's regression without the measured values."""

    rows: tuple[ObservedShape, ...]
    answered: Whole
    """indices of the rows for which theory has an answer"""
    answered_rows: tuple[ObservedShape, ...]
    x: Matrix
    terms: GramTerms
    ideal: Column
    """samples/s per GPU, by theory"""


class _WorkloadCache(msgspec.Struct):
    changes: int
    """`Store.changes` of the workload when it was looked at last"""
    revision: Revision
    """`Store.revision` of the workload on the types of the question"""
    shapes: tuple[Shape, ...]
    """shapes in the store: the same tuple until there are others"""
    design: _Design
    seen: SufficientStatistics | None


class _PlacesCache(msgspec.Struct):
    """What is kept for one set of columns: types with their paths, and models of server."""

    seen: dict[Fingerprint, _WorkloadCache] = {}
    ran: list[SufficientStatistics] = []
    """what the workloads that ran last showed"""
    common: Column | None = None
    """β of the workloads in `ran`; None: not computed yet"""
    changes: int = 0
    """`Store.changes` when these workloads were looked at last"""


class Residuals:
    """Factors on theory. A workload's statistics are computed again only when the store has changed them."""

    def __init__(self) -> None:
        self._kept: dict[tuple[object, ...], _PlacesCache] = {}
        self.ideals = Ideals()

    def factors(self, context: LookupContext, fingerprints: Sequence[Fingerprint]) -> "Factors":
        """The factors of these workloads on the places of a question. Raises StoreUnavailable."""
        places, store = context.places, context.store
        question = _question(context)
        if question not in self._kept:
            self._kept = {**dict(list(self._kept.items())[-PLACES_KEPT + 1 :]), question: _PlacesCache()}
        kept = self._kept[question]
        if len(kept.seen) > WORKLOADS_IN_MEMORY:
            kept.seen.clear()

        def seen(fingerprint: Fingerprint) -> SufficientStatistics | None:
            changes, one = store.changes(fingerprint), kept.seen.get(fingerprint)
            if one is None or one.changes != changes:
                one = kept.seen[fingerprint] = self._fresh(fingerprint, context, places, one)
                one.changes = changes
            return one.seen

        if kept.common is None or kept.changes != store.changes():
            ran = [one for name in store.latest(COMMON_WORKLOADS) if (one := seen(name)) is not None]
            if kept.common is None or list(map(id, ran)) != list(map(id, kept.ran)):
                kept.common, kept.ran = common(ran, SHAPE_COEFFICIENTS + len(places)), ran
            kept.changes = store.changes()  # looking may have brought workloads into memory
        return Factors(places, coefficients(kept.common, [seen(name) for name in fingerprints]))

    def _fresh(
        self,
        fingerprint: Fingerprint,
        context: LookupContext,
        places: Sequence[HostModel],
        before: _WorkloadCache | None,
    ) -> _WorkloadCache:
        """The workload's statistics now: `before` itself, if only types outside the question have changed."""
        revision = context.store.revision(fingerprint, context.theory.types)
        if before is not None and before.revision == revision:
            return before
        shapes, rows, mean = _observed(fingerprint, context, before)
        if before is not None and before.design.rows == rows and before.revision.theory == revision.theory:
            design = before.design
        else:
            ideal = self.ideals.of_shapes(
                fingerprint, [row.shape for row in rows], context.theory, context.store
            )
            design = _design(rows, ideal, places, before.design if before else None)
        return _WorkloadCache(0, revision, shapes, design, _seen(design, mean))


def _question(context: LookupContext) -> tuple[object, ...]:
    """The key of a `_PlacesCache`: the types with their paths, and the servers by model."""
    types = tuple((one, context.theory.types[one]) for one in sorted(context.theory.types))
    hosts = context.hosts
    return types, hosts.place, hosts.servers, tuple(hosts.start.tolist())


def _observed(
    fingerprint: Fingerprint, context: LookupContext, before: _WorkloadCache | None
) -> tuple[tuple[Shape, ...], tuple[ObservedShape, ...], Column]:
    """A workload's shapes, its rows of x (by type, or by type and model of server), and their means."""
    observed, hosts = context.store.shape_means(fingerprint), context.hosts
    unlike = {gpu_type for gpu_type, _ in hosts.place}
    shapes, mean = observed.shapes, observed.mean
    if not unlike:
        if before is not None and before.shapes is shapes:
            return shapes, before.design.rows, mean
        return shapes, tuple([ObservedShape(shape, "") for shape in shapes]), mean
    alike = [index for index, shape in enumerate(shapes) if shape.gpu_type not in unlike]
    rows, means = [ObservedShape(shapes[index], "") for index in alike], [mean[alike]]
    of_servers = [
        (kind, shape)
        for kind, (gpu_type, _) in enumerate(hosts.place)
        for shape in shapes
        if shape.gpu_type == gpu_type
    ]
    if of_servers:
        shown = _of_servers(fingerprint, of_servers, context)
        rows += [
            ObservedShape(shape, hosts.place[kind][1])
            for (kind, shape), one in zip(of_servers, shown.count.tolist(), strict=True)
            if one
        ]
        means.append(shown.mean[shown.count > 0])
    return shapes, tuple(rows), np.concatenate(means)


def _of_servers(
    fingerprint: Fingerprint, rows: Sequence[tuple[int, Shape]], context: LookupContext
) -> Evidence:
    """The pooled evidence of the servers of a kind, for each kind and shape of `rows`."""
    nodes = np.array([shape.nodes for _, shape in rows], dtype=np.int64)
    gpus = np.array([shape.gpus for _, shape in rows], dtype=np.int64)
    return of_like_servers(
        context.hosts,
        context.store,
        [fingerprint],
        workload=np.zeros_like(nodes),
        kind=np.array([kind for kind, _ in rows], dtype=np.int64),
        distributed=nodes > 1,
        size=np.where(nodes > 1, size_of(nodes, gpus), gpus),
    )


PLACES_KEPT = 8
"""sets of columns, those asked about last, that are kept"""


class Factors(msgspec.Struct, frozen=True):
    """Factors on theory for the workloads of a question."""

    places: Sequence[HostModel]
    coefficients: Matrix
    """shape (workloads, columns of x)"""

    def of(self, workload: Whole, place: Sequence[HostModel], nodes: Whole, gpus: Whole) -> Column:
        """The factor of each row; `place`: GPU type and server model of each row."""
        if not self.coefficients.any():
            return np.ones(len(workload))
        x = described(self.places, place, nodes, gpus)
        factor = np.exp((x * self.coefficients[workload]).sum(axis=1))
        return np.asarray(factor.clip(1.0 / FACTOR_MOST, FACTOR_MOST).round(DIGITS), dtype=np.float64)


def described(places: Sequence[HostModel], place: Sequence[HostModel], nodes: Whole, gpus: Whole) -> Matrix:
    """x, a row a gang; `place`: GPU type and server model of each."""
    number = {one: SHAPE_COEFFICIENTS + index for index, one in enumerate(places)}
    x = np.zeros((len(nodes), SHAPE_COEFFICIENTS + len(places)))
    x[:, 0], x[:, 1], x[:, 2] = 1.0, nodes > 1, np.log2(gpus)
    row = np.arange(len(nodes))
    x[row, [number[gpu_type, ""] for gpu_type, _ in place]] = 1.0
    server = np.array([number[one] if one[1] else 0 for one in place], dtype=np.int64)
    x[row[server > 0], server[server > 0]] = SERVER_SPREADS
    return x


@cache
def _precision(width: int) -> Matrix:
    """1 / SPREAD² as a matrix, for `width` coefficients."""
    return np.eye(width) / SPREAD**2


def gram_terms(x: Matrix) -> GramTerms:
    gram = x.T @ x / ERROR**2
    covariance = np.asarray(np.linalg.inv(gram + _precision(len(gram))), dtype=np.float64)
    shrinkage = gram @ covariance
    return GramTerms(gram, covariance, shrinkage, gram - shrinkage @ gram)


def statistics_of(x: Matrix, terms: GramTerms, ratio: Column) -> SufficientStatistics:
    """The statistics of one workload's gangs. `ratio`: measured / theory of each gang."""
    y = np.log(ratio.clip(1.0 / FACTOR_MOST, FACTOR_MOST))
    moments = x.T @ y / ERROR**2
    return SufficientStatistics(
        terms=terms,
        moments=moments,
        marginal_moments=moments - terms.shrinkage @ moments,
        shapes=len(y),
        distance=float(y @ y / ERROR**2 - moments @ terms.covariance @ moments),
    )


def common(seen: Sequence[SufficientStatistics], width: int) -> Column:
    """β, from the statistics of the workloads that ran last."""
    weights = [1.0] * len(seen)
    for _ in range(STEPS_MOST):
        weighted = list(zip(weights, seen, strict=True))
        left = _precision(width) + sum([weight * one.terms.marginal_gram for weight, one in weighted])
        right = sum((weight * one.marginal_moments for weight, one in weighted), np.zeros(width))
        beta = np.asarray(np.linalg.solve(left, right), dtype=np.float64)
        before, weights = weights, [_weight(one, beta) for one in seen]
        if weights == before:
            break
    return beta


def _weight(one: SufficientStatistics, beta: Column) -> float:
    """ω of one workload."""
    squared = one.distance + float((one.terms.marginal_gram @ beta - 2.0 * one.marginal_moments) @ beta)
    usual = FAR**2 * one.shapes
    return usual / squared if squared > usual else 1.0


def coefficients(common: Column, own: Sequence[SufficientStatistics | None]) -> Matrix:
    """β_w of each of `own`; β for a workload that showed nothing."""
    found = np.tile(common, (len(own), 1))
    for index, one in enumerate(own):
        if one is not None:
            found[index] += one.terms.covariance @ (one.moments - one.terms.gram @ common)
    return np.asarray(found.round(DIGITS), dtype=np.float64)


def _design(
    rows: tuple[ObservedShape, ...],
    ideal: Sequence[float | None],
    places: Sequence[HostModel],
    before: _Design | None,
) -> _Design:
    """A workload's design. `before`: its last one on these places; equal rows keep its x."""
    answered = [(index, one) for index, one in enumerate(ideal) if one is not None]
    answered_rows = tuple([rows[index] for index, _ in answered])
    if before is not None and answered_rows == before.answered_rows:
        x, terms = before.x, before.terms
    else:
        nodes = np.array([row.shape.nodes for row in answered_rows], dtype=np.int64)
        gpus = np.array([row.shape.gpus for row in answered_rows], dtype=np.int64)
        x = described(places, [(row.shape.gpu_type, row.server) for row in answered_rows], nodes, gpus)
        terms = gram_terms(x)
    index = np.array([index for index, _ in answered], dtype=np.int64)
    return _Design(
        rows, index, answered_rows, x, terms, np.array([one for _, one in answered], dtype=np.float64)
    )


def _seen(design: _Design, mean: Column) -> SufficientStatistics | None:
    if not len(design.answered):
        return None
    return statistics_of(design.x, design.terms, mean[design.answered] / design.ideal)
