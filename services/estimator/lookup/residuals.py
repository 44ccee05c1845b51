"""What theory does not know, learnt from gangs of other shapes (docs/adr/0027). Pure but for the store.

What a type showed with some shape is compared with what theory says of that shape now. With N GPUs:

    log(measured / theory) = β_w · x + error,    x = (1, over several nodes, log2 N, type)
    β_w ~ N(β, SPREAD²),  β ~ N(0, SPREAD²),  error ~ N(0, ERROR²)

so that a workload that has not run yet has what the others have in common, β, one that has run draws away
from it with every shape, and where nothing was seen the factor exp(β_w · x) is 1. A workload w comes in by
A = XᵀX / ERROR² and b = Xᵀy / ERROR² alone, and with M = (A + 1 / SPREAD²)⁻¹

    β   = (1 / SPREAD² + Σ (A − A·M·A))⁻¹ · Σ (b − A·M·b)     over the workloads that ran last
    β_w = β + M · (b − A·β)
"""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from schemas.calibration import Path
from schemas.ids import Fingerprint, GpuType
from services.estimator.lookup.ideals import Ideals
from services.estimator.lookup.known import Known
from services.estimator.store.contract import Revision, Shape, Showings, Store
from services.estimator.store.table import Whole
from services.estimator.theory.formula import Computed
from shared.domain.iteration import Column

SPREAD = 0.05
"""standard deviation of a workload's coefficients from the common ones, and of those from 0"""
ERROR = 0.04
"""of what one shape showed: servers of a model differ by some per cent for good"""
AT_MOST = 3.0
"""times, or a share of, what theory says: beyond it nothing is believed"""
COMMON = 64
"""workloads, those that ran last, from which the common coefficients are"""
DIGITS = 9
"""that come out alike on every machine"""
OF_A_SHAPE = 3
"""coefficients beside those of types"""

Types = Mapping[GpuType, tuple[Path, ...]]
"""of a cluster, and the paths of their gradients"""
Matrix = npt.NDArray[np.float64]


class Terms(msgspec.Struct, frozen=True):
    """What follows from x alone, a workload's."""

    squares: Matrix
    """A"""
    inverse: Matrix
    """M"""
    inner: Matrix
    """A·M"""
    left: Matrix
    """A − A·M·A"""


class Seen(msgspec.Struct, frozen=True):
    """What one workload's gangs showed."""

    terms: Terms
    products: Column
    """b"""
    right: Column
    """b − A·M·b"""


class _Design(msgspec.Struct, frozen=True):
    """All but what was measured."""

    shapes: tuple[Shape, ...]
    rows: Whole
    """of those, the ones that theory has an answer for"""
    own: tuple[Shape, ...]
    """these"""
    x: Matrix
    terms: Terms
    ideal: Column
    """samples/s per GPU, by theory"""


class _Kept(msgspec.Struct, frozen=True):
    revision: Revision
    design: _Design
    seen: Seen | None


class _Place(msgspec.Struct):
    """What was computed for some types on some paths."""

    seen: dict[Fingerprint, _Kept] = {}
    common: Column | None = None
    """β; None: not computed yet"""
    changes: int = 0
    """of the store, when β was computed"""


class Residuals:
    """Factors on theory. What a workload's gangs showed is computed again only once it is other."""

    def __init__(self) -> None:
        self._kept: dict[tuple[object, ...], _Place] = {}
        self._ideals = Ideals()

    def factors(
        self, store: Store, computed: Computed, about: Known, fingerprints: Sequence[Fingerprint]
    ) -> "Factors":
        """Of these workloads, on the types of a question. Raises StoreUnavailable."""
        types = sorted(about.types)
        place = tuple((one, about.types[one]) for one in types)
        if place not in self._kept:
            self._kept = {**dict(list(self._kept.items())[-PLACES_KEPT + 1 :]), place: _Place()}
        kept = self._kept[place]

        def seen(fingerprint: Fingerprint) -> Seen | None:
            revision, before = store.revision(fingerprint), kept.seen.get(fingerprint)
            if before is None or before.revision != revision:
                before = kept.seen[fingerprint] = self._fresh(fingerprint, store, computed, about, before)
            return before.seen

        if kept.common is None or kept.changes != store.changes():
            ran = [one for name in store.latest(COMMON) if (one := seen(name)) is not None]
            kept.common = common(ran, OF_A_SHAPE + len(types))
            kept.changes = store.changes()  # looking may have brought workloads into memory
        return Factors(types, coefficients(kept.common, [seen(name) for name in fingerprints]))

    def _fresh(
        self, fingerprint: Fingerprint, store: Store, computed: Computed, about: Known, before: _Kept | None
    ) -> _Kept:
        showings, revision = store.showings(fingerprint), store.revision(fingerprint)
        if (
            before is not None
            and before.design.shapes is showings.shapes
            and before.revision.theory == revision.theory
        ):
            design = before.design
        else:
            ideal = self._ideals.of(
                fingerprint, showings.shapes, revision.theory, store=store, computed=computed, about=about
            )
            design = _design(showings.shapes, ideal, sorted(about.types), before.design if before else None)
        return _Kept(revision, design, _seen(design, showings))


PLACES_KEPT = 8
"""clusters, or parts of one, that were asked about"""


class Factors(msgspec.Struct, frozen=True):
    types: Sequence[GpuType]
    coefficients: Matrix
    """by workload"""

    def of(self, workload: Whole, gpu_type: Sequence[GpuType], nodes: Whole, gpus: Whole) -> Column:
        """By row; `gpu_type`: of each row."""
        if not self.coefficients.any():
            return np.ones(len(workload))
        x = described(self.types, gpu_type, nodes, gpus)
        factor = np.exp((x * self.coefficients[workload]).sum(axis=1))
        return np.asarray(np.round(np.clip(factor, 1.0 / AT_MOST, AT_MOST), DIGITS), dtype=np.float64)


def described(types: Sequence[GpuType], gpu_type: Sequence[GpuType], nodes: Whole, gpus: Whole) -> Matrix:
    """x, a row a gang."""
    number = {one: OF_A_SHAPE + index for index, one in enumerate(types)}
    x = np.zeros((len(nodes), OF_A_SHAPE + len(types)))
    x[:, 0], x[:, 1], x[:, 2] = 1.0, nodes > 1, np.log2(gpus)
    x[np.arange(len(nodes)), [number[one] for one in gpu_type]] = 1.0
    return x


def terms_of(x: Matrix) -> Terms:
    squares = x.T @ x / ERROR**2
    inverse = np.asarray(np.linalg.inv(squares + np.eye(len(squares)) / SPREAD**2), dtype=np.float64)
    inner = squares @ inverse
    return Terms(squares, inverse, inner, squares - inner @ squares)


def shown(x: Matrix, terms: Terms, ratio: Column) -> Seen:
    """`ratio`: measured / theory of each gang."""
    y = np.log(np.clip(ratio, 1.0 / AT_MOST, AT_MOST))
    products = x.T @ y / ERROR**2
    return Seen(terms, products, products - terms.inner @ products)


def common(seen: Sequence[Seen], width: int) -> Column:
    """β, of the workloads that ran last."""
    left = np.eye(width) / SPREAD**2 + sum(one.terms.left for one in seen)
    right = sum((one.right for one in seen), np.zeros(width))
    return np.asarray(np.linalg.solve(left, right), dtype=np.float64)


def coefficients(common: Column, own: Sequence[Seen | None]) -> Matrix:
    """β_w of each of `own`; β for a workload that showed nothing."""
    found = np.tile(common, (len(own), 1))
    for index, one in enumerate(own):
        if one is not None:
            found[index] += one.terms.inverse @ (one.products - one.terms.squares @ common)
    return np.asarray(np.round(found, DIGITS), dtype=np.float64)


def _design(
    shapes: tuple[Shape, ...], ideal: Sequence[float | None], types: Sequence[GpuType], before: _Design | None
) -> _Design:
    """`before`: the last one of the workload on these types."""
    answered = [(row, one) for row, one in enumerate(ideal) if one is not None]
    own = tuple([shapes[row] for row, _ in answered])
    if before is not None and own == before.own:
        x, terms = before.x, before.terms
    else:
        nodes = np.array([shape.nodes for shape in own], dtype=np.int64)
        gpus = np.array([shape.gpus for shape in own], dtype=np.int64)
        x = described(types, [shape.gpu_type for shape in own], nodes, gpus)
        terms = terms_of(x)
    rows = np.array([row for row, _ in answered], dtype=np.int64)
    return _Design(shapes, rows, own, x, terms, np.array([one for _, one in answered], dtype=np.float64))


def _seen(design: _Design, showings: Showings) -> Seen | None:
    if not len(design.rows):
        return None
    return shown(design.x, design.terms, showings.mean[design.rows] / design.ideal)
