"""Bounds that no schedule can beat: two linear programs on true speeds. Pure mathematics.

Data: jobs j with arrival a_j and work 1; places c of a job (g_c GPUs of type t_c), on which its whole work
takes p_jc seconds; N_t GPUs of type t. Time is cut into intervals k = [s_k, e_k). Variables

    f_jck ≥ 0     share of the work of j that is done at c in interval k, from that of its arrival on

with, for every job, interval and type,

    Σ_ck f_jck = 1,   Σ_c p_jc f_jck ≤ e_k − max(s_k, a_j),   Σ_jc∈t g_c p_jc f_jck ≤ N_t (e_k − s_k)

**Makespan.** The last interval begins with the last arrival and has the length L, which is minimised; no
schedule ends before s_last + L, nor before any a_j + min_c p_jc.

**Mean JCT.** No share of the work is done before its interval begins, and none faster than p_j = min_c p_jc,
so the work's mean time is at least Σ_ck max(s_k, a_j) f_jck, and the job ends p_j / 2 after that mean at the
earliest:

    minimise Σ_j z_j,   z_j ≥ p_j,   z_j ≥ Σ_ck max(s_k, a_j) f_jck + p_j / 2 − a_j

The last interval has no end and no limit. (Mean busy times: Goemans, Queyranne, Schulz, Skutella and Wang,
SIAM J. Discrete Math. 15(2), 2002.)

A schedule gives a job one place at a time. Unlike GPUs in one gang are covered: a gang in lockstep is no
faster than the slowest of its types with as many GPUs, so time shared between these places in proportion
does as much with the same GPUs. That is why there are places with g_c > N_t. Gangs of unlike shares are not
covered: they may be faster. Nothing is charged for rounds, starts, checkpoints or profiles.
"""

from collections.abc import Sequence
from itertools import groupby

import highspy
import msgspec
import numpy as np

from shared.domain.arrays import Floats, Ints

COLUMNS_ABOUT = 100_000
"""variables of a program, about; with more jobs intervals are longer, and a bound looser but valid"""
INTERVALS = range(4, 49)
OFFERS_AT_MOST = 200_000
"""places of all jobs; with more, the programs take longer than the simulations"""
BEYOND = 1.05
"""times the bound on the makespan: from there on the intervals of the mean JCT have no limit"""


class Offer(msgspec.Struct, frozen=True):
    """A place of a job."""

    kind: int
    """GPU type: a position in the stock"""
    gpus: int
    seconds: float
    """seconds for all of the job's work"""

    @property
    def gpu_s(self) -> float:
        return self.gpus * self.seconds


class Work(msgspec.Struct, frozen=True):
    arrives_at: float
    offers: tuple[Offer, ...]
    """at least one"""

    @property
    def shortest_s(self) -> float:
        return min(offer.seconds for offer in self.offers)


class Unsolved(RuntimeError):
    """There are too many jobs, or the solver came to no optimum; the text says which."""


def makespan_s(works: Sequence[Work], stock: Sequence[int]) -> float:
    """A bound on the makespan, in seconds. `stock`: GPUs by type. Needs a job. Raises Unsolved."""
    arrivals = np.array([work.arrives_at for work in works])
    starts = np.unique(np.quantile(arrivals, np.linspace(0.0, 1.0, _intervals(works)), method="lower"))
    shares = _Shares(works, starts)
    length = shares.count  # the column of L
    program = _Program(length + 1)
    program.cost[length] = 1.0
    program.equal(shares.job, shares.column, np.ones(shares.count), np.ones(len(works)))
    for limit in _limits(works, stock, np.r_[starts, starts[-1]], shares):
        last = np.flatnonzero(limit.in_last)
        program.at_most(
            np.r_[limit.row, last],
            np.r_[shares.column, np.full(len(last), length)],
            np.r_[limit.value, -limit.unit[last]],
            np.where(limit.in_last, 0.0, limit.room),
        )
    alone = max(work.arrives_at + work.shortest_s for work in works)
    ended = float(starts[-1] + program.minimum())
    return max(ended, alone) - float(arrivals.min())


def mean_jct_s(works: Sequence[Work], stock: Sequence[int]) -> float:
    """A bound on the mean JCT, in seconds. Needs a job. Raises Unsolved."""
    arrivals = np.array([work.arrives_at for work in works])
    shortest = np.array([work.shortest_s for work in works])
    span_s, count = BEYOND * makespan_s(works, stock), _intervals(works)
    starts = arrivals.min() + span_s * np.linspace(0.0, 1.0, count) ** 1.2
    shares = _Shares(works, starts)
    jobs = np.arange(len(works))
    program = _Program(shares.count + len(works))
    program.cost[shares.count :] = 1.0 / len(works)
    program.lower[shares.count :] = shortest
    program.equal(shares.job, shares.column, np.ones(shares.count), np.ones(len(works)))
    for limit in _limits(works, stock, np.r_[starts, np.inf], shares):
        program.at_most(limit.row, shares.column, limit.value, limit.room)
    program.at_most(
        np.r_[shares.job, jobs],
        np.r_[shares.column, shares.count + jobs],
        np.r_[shares.begins - arrivals[shares.job], -np.ones(len(works))],
        -shortest / 2,
    )
    return program.minimum()


def efficient(offers: Sequence[Offer]) -> tuple[Offer, ...]:
    """The offers without those that others of the type, taken in turns, beat in seconds and GPU-seconds."""
    kept: list[Offer] = []
    by_kind = sorted(offers, key=lambda offer: (offer.kind, offer.gpu_s, offer.seconds))
    for _, group in groupby(by_kind, lambda offer: offer.kind):
        hull: list[Offer] = []
        for offer in group:
            if hull and offer.seconds >= hull[-1].seconds:
                continue
            while len(hull) > 1 and _above(hull[-2], hull[-1], offer):
                hull.pop()
            hull.append(offer)
        kept += hull
    return tuple(kept)


def _above(left: Offer, middle: Offer, right: Offer) -> bool:
    """Whether `middle` is not below the line between its neighbours."""
    rise = (middle.seconds - left.seconds) * (right.gpu_s - left.gpu_s)
    return rise >= (right.seconds - left.seconds) * (middle.gpu_s - left.gpu_s)


def _intervals(works: Sequence[Work]) -> int:
    offers = sum(len(efficient(work.offers)) for work in works)
    if offers > OFFERS_AT_MOST:
        raise Unsolved(f"{len(works)} jobs with {offers} places: too many for the program")
    return min(max(COLUMNS_ABOUT // offers, INTERVALS[0]), INTERVALS[-1])


class _Shares:
    """The variables f, by job, place and interval."""

    def __init__(self, works: Sequence[Work], starts: Floats) -> None:
        arrivals = np.array([work.arrives_at for work in works])
        self.intervals = len(starts)
        kept = [efficient(work.offers) for work in works]
        offers = [offer for each in kept for offer in each]
        owner = np.repeat(np.arange(len(works)), [len(each) for each in kept])
        first = np.searchsorted(starts, arrivals[owner], side="right") - 1
        many = self.intervals - first
        self.count = int(many.sum())
        self.column: Ints = np.arange(self.count, dtype=np.int32)
        offer = np.repeat(np.arange(len(offers)), many)
        self.job: Ints = owner[offer].astype(np.int32)
        place = self.column - np.repeat(np.cumsum(many) - many, many)
        self.interval: Ints = (place + first[offer]).astype(np.int32)
        self.kind: Ints = np.array([one.kind for one in offers])[offer]
        self.seconds: Floats = np.array([one.seconds for one in offers])[offer]
        self.gpu_s: Floats = np.array([one.gpu_s for one in offers])[offer]
        self.begins: Floats = np.maximum(starts[self.interval], arrivals[self.job])


class _Limit(msgspec.Struct, frozen=True):
    """Rows of jobs, or of types: one an interval each."""

    row: Ints
    """by share"""
    value: Floats
    """by share"""
    room: Floats
    """by row"""
    unit: Floats
    """by row: what each second of its interval adds to its room"""
    in_last: Ints
    """by row: whether it is one of the last interval"""


def _limits(
    works: Sequence[Work], stock: Sequence[int], edges: Floats, shares: _Shares
) -> tuple[_Limit, _Limit]:
    """One place at a time; no more GPUs of a type than there are. `edges`: of the intervals."""
    many = shares.intervals
    arrivals = np.array([work.arrives_at for work in works])
    own_s = np.maximum(edges[1:] - np.maximum(edges[:-1], arrivals[:, np.newaxis]), 0.0)
    gpus = np.asarray(stock, dtype=np.float64)
    of_job = _Limit(
        row=shares.job * many + shares.interval,
        value=shares.seconds,
        room=own_s.ravel(),
        unit=np.ones(len(works) * many),
        in_last=np.tile(np.arange(many) == many - 1, len(works)),
    )
    of_type = _Limit(
        row=shares.kind * many + shares.interval,
        value=shares.gpu_s,
        room=np.outer(gpus, np.diff(edges)).ravel(),
        unit=np.repeat(gpus, many),
        in_last=np.tile(np.arange(many) == many - 1, len(stock)),
    )
    return of_job, of_type


class _Program:
    """Minimise cost · x over equal and bounded rows, built up block by block."""

    def __init__(self, columns: int) -> None:
        self.cost = np.zeros(columns)
        self.lower = np.zeros(columns)
        self._rows: list[Ints] = []
        self._columns: list[Ints] = []
        self._values: list[Floats] = []
        self._low: list[Floats] = []
        self._high: list[Floats] = []

    def equal(self, row: Ints, column: Ints, value: Floats, to: Floats) -> None:
        self._add(row, column, value, to, to)

    def at_most(self, row: Ints, column: Ints, value: Floats, limit: Floats) -> None:
        self._add(row, column, value, np.full(len(limit), -np.inf), limit)

    def _add(self, row: Ints, column: Ints, value: Floats, low: Floats, high: Floats) -> None:
        self._rows.append(row + sum(map(len, self._high)))
        self._columns.append(column)
        self._values.append(value)
        self._low.append(low)
        self._high.append(high)

    def minimum(self) -> float:
        """The objective at the optimum. Raises Unsolved."""
        highs = highspy.Highs()
        for name, chosen in (("output_flag", False), ("threads", 1), ("solver", "ipm"), ("random_seed", 1)):
            highs.setOptionValue(name, chosen)
        highs.passModel(self._model())
        highs.run()
        status = highs.getModelStatus()
        if status != highspy.HighsModelStatus.kOptimal:
            raise Unsolved(f"the program is {highs.modelStatusToString(status)}")
        return float(highs.getInfo().objective_function_value)

    def _model(self) -> highspy.HighsLp:
        rows, columns = np.concatenate(self._rows), np.concatenate(self._columns)
        order = np.lexsort((rows, columns))
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = len(self.cost), sum(map(len, self._high))
        model.col_cost_, model.col_lower_ = self.cost, self.lower
        model.col_upper_ = np.full(len(self.cost), highspy.kHighsInf)
        model.row_lower_, model.row_upper_ = np.concatenate(self._low), np.concatenate(self._high)
        model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        model.a_matrix_.start_ = np.searchsorted(columns[order], np.arange(len(self.cost) + 1))
        model.a_matrix_.index_ = rows[order]
        model.a_matrix_.value_ = np.concatenate(self._values)[order]
        return model
