"""The linear program over some of the configurations, kept in HiGHS while columns and facets join it.

    maximise    Σ_c value_c · x_c
    subject to  Σ_{c of job i} x_c ≤ 1               price u_i
                Σ_c gpus_{c,n} x_c ≤ capacity_n      price π_n
                Σ_c f(gpus_{c,n}) x_c ≤ 1            price w_f, for every facet f of node n added so far
                Σ_{c in k} x_c ≤ 1                       price y_k, for every clique k added so far
                x_c ≥ 0

Values are divided by the largest, so that HiGHS' tolerances fit them. The rows are jobs, nodes, then facets
and cliques in the order in which they were added. A column that joins later is in no clique that was there
before.
"""

import weakref

import highspy
import msgspec
import numpy as np

from services.planner.solver.own.cliques import MOST, broken_cliques, exclusions
from services.planner.solver.own.columns import Columns
from services.planner.solver.own.facets import facets
from services.planner.solver.own.meter import Meter, Spent
from services.planner.solver.problem import NOTHING
from shared.domain.arrays import Flags, Floats, Ints

OPTIONS: dict[str, bool | int | str] = {
    "output_flag": False,
    "random_seed": 1,
    "threads": 1,
    "presolve": "off",
}
VIOLATED = 0.02
"""a facet is added if its left side exceeds 1 by more than this"""
TINY = 1e-9
"""a coefficient up to this is left out"""


_idle: list[highspy.Highs] = []
"""HiGHS objects of deleted masters, to be used again: making one takes as long as solving a small program"""


def _cleared() -> highspy.Highs:
    """An empty HiGHS object, an idle one if there is any."""
    try:
        highs = _idle.pop()
    except IndexError:
        return highspy.Highs()
    highs.clear()
    return highs


class RelaxedSolution(msgspec.Struct, frozen=True):
    objective: float
    x: Floats
    """by column, in the order of `Master.rows`"""
    dual: Floats
    """by job: its price u"""
    price: Floats
    """φ [node, size]: the price of a gang"""
    whole: float
    """the price of all GPUs, facets and cliques together: the bound is this + Σ_i of each job's best net
    value"""
    extra: Floats | None = None
    """by configuration of the problem: the prices of the cliques that it is in; None: there are no cliques"""


class Master:
    """The program, and which configurations, facets and cliques are in it."""

    def __init__(self, columns: Columns, meter: Meter) -> None:
        problem = columns.problem
        self.columns = columns
        self.rows = np.empty(0, dtype=np.int32)
        """the configurations that have joined"""
        self._meter = meter
        self._jobs, self._nodes = problem.jobs, len(problem.capacity)
        self._sizes = columns.sizes
        self._scale = float(columns.value.max())
        self._joined = np.full(len(problem), NOTHING, dtype=np.int32)
        self._rows = problem.jobs + len(problem.capacity)
        self._facet_row = np.empty(0, dtype=np.int32)
        self._facet_node = np.empty(0, dtype=np.int32)
        self._facet = np.empty((0, self._sizes))
        self._known: set[tuple[int, int, int]] = set()
        self._clique_row: list[int] = []
        self._clique: list[Ints] = []
        """the configurations of each clique"""
        self._known_cliques: set[bytes] = set()
        self._excluded: Flags | None = None
        """the `exclusions` of the configurations that had joined when they were computed"""
        self._highs = _cleared()
        weakref.finalize(self, _idle.append, self._highs).atexit = False
        for name, value in OPTIONS.items():
            self._highs.setOptionValue(name, value)
        self._add_rows(np.concatenate([np.ones(problem.jobs), problem.capacity]), None)

    # ---- growing

    def join(self, rows: Ints) -> int:
        """Add configurations as columns; returns how many of them are new."""
        rows = rows[self._joined[rows] == NOTHING]
        if not len(rows):
            return 0
        self._joined[rows] = np.arange(len(self.rows), len(self.rows) + len(rows), dtype=np.int32)
        self.rows = np.concatenate([self.rows, rows])
        start, index, value = self._coefficients(rows)
        self._highs.addCols(
            len(rows),
            -self.columns.value[rows] / self._scale,
            np.zeros(len(rows)),
            np.full(len(rows), highspy.kHighsInf),
            len(index),
            start,
            index,
            value,
        )
        return len(rows)

    def joined(self, rows: Ints) -> Flags:
        """By configuration of `rows`: whether it is a column."""
        joined: Flags = self._joined[rows] != NOTHING
        return joined

    def cut(self, x: Floats, free: Ints, open_: Flags) -> int:
        """Add the facets that x breaks; returns how many.

        The facets are those of nodes with `free` GPUs, and only the columns `open_` are in them.
        """
        start, node, size = self.columns.cells(self.rows)
        column = np.repeat(np.arange(len(self.rows), dtype=np.int32), np.diff(start))
        held = np.zeros((self._nodes, self._sizes))
        of_open = open_[column]
        column, node, size = column[of_open], node[of_open], size[of_open]
        np.add.at(held, (node, size), x[column])
        broken = self._broken(held, free)
        if broken:
            self._add_facets(broken, column, node, size)
        return len(broken)

    def exclude(self, x: Floats) -> int:
        """Add cliques that x breaks; returns how many. With more than `MOST` columns none are looked for."""
        if len(self.rows) > MOST:
            return 0
        if self._excluded is None or len(self._excluded) < len(self.rows):
            self._excluded = exclusions(self.columns, self.rows)
        self._meter.charge_cliques(len(self.rows))
        found = [one for one in broken_cliques(self._excluded, x) if one.tobytes() not in self._known_cliques]
        if not found:
            return 0
        self._known_cliques |= {one.tobytes() for one in found}
        self._clique_row += range(self._rows, self._rows + len(found))
        self._clique += [self.rows[one] for one in found]
        index = np.concatenate(found)
        starts = np.cumsum([0, *map(len, found[:-1])]).astype(np.int32)
        self._add_rows(np.ones(len(found)), (starts, index, np.ones(len(index))))
        self._rows += len(found)
        return len(found)

    def _broken(self, held: Floats, free: Ints) -> list[tuple[int, Floats]]:
        found = []
        for gpus in np.unique(free).tolist():
            functions = facets(gpus)
            nodes = np.flatnonzero(free == gpus)
            excess = held[nodes, : gpus + 1] @ functions.T > 1.0 + VIOLATED
            of_all_sizes = np.zeros((len(functions), self._sizes))
            of_all_sizes[:, : gpus + 1] = functions
            for at, which in np.argwhere(excess).tolist():
                key = (int(nodes[at]), gpus, which)
                if key not in self._known:
                    self._known.add(key)
                    found.append((key[0], of_all_sizes[which]))
        return found

    def _add_facets(self, broken: list[tuple[int, Floats]], column: Ints, node: Ints, size: Ints) -> None:
        order = np.argsort(node, kind="stable")
        edges = np.searchsorted(node[order], np.arange(self._nodes + 1))
        pointers, indices, values = [0], [], []
        for at, function in broken:
            cells = order[edges[at] : edges[at + 1]]
            share = function[size[cells]]
            used = share > TINY
            indices.append(column[cells[used]])
            values.append(share[used])
            pointers.append(pointers[-1] + int(used.sum()))
        matrix = (np.array(pointers[:-1], dtype=np.int32), np.concatenate(indices), np.concatenate(values))
        self._add_rows(np.ones(len(broken)), matrix)
        more = np.arange(self._rows, self._rows + len(broken), dtype=np.int32)
        self._facet_row = np.append(self._facet_row, more)
        self._rows += len(broken)
        self._facet_node = np.append(self._facet_node, np.array([at for at, _ in broken], dtype=np.int32))
        self._facet = np.vstack([self._facet, *(function for _, function in broken)])

    def _add_rows(self, upper: Floats, matrix: tuple[Ints, Ints, Floats] | None) -> None:
        none = np.zeros(len(upper), dtype=np.int32), np.empty(0, dtype=np.int32), np.empty(0)
        start, index, value = matrix or none
        lower = np.full(len(upper), -highspy.kHighsInf)
        self._highs.addRows(len(upper), lower, upper.astype(float), len(index), start, index, value)

    def _coefficients(self, rows: Ints) -> tuple[Ints, Ints, Floats]:
        """The compressed columns of configurations.

        Each has an entry for its job, for the node of each gang, and for each facet of such a node.
        """
        start, node, size = self.columns.cells(rows)
        column = np.repeat(np.arange(len(rows)), np.diff(start))
        order = np.argsort(self._facet_node, kind="stable")
        edges = np.searchsorted(self._facet_node[order], np.arange(self._nodes + 1))
        times = np.diff(edges)[node]
        ends = np.cumsum(times)
        facet = order[np.repeat(edges[node] - ends + times, times) + np.arange(times.sum())]
        share = self._facet[facet, np.repeat(size, times)]
        used = share > TINY
        owner = np.concatenate([np.arange(len(rows)), column, np.repeat(column, times)[used]])
        index = np.concatenate(
            [self.columns.problem.job[rows], self._jobs + node, self._facet_row[facet][used]]
        )
        value = np.concatenate([np.ones(len(rows)), size, share[used]])
        order = np.argsort(owner, kind="stable")
        pointers = np.searchsorted(owner[order], np.arange(len(rows)))
        return pointers.astype(np.int32), index[order].astype(np.int32), value[order]

    # ---- deciding

    def fix(self, positions: Ints, value: float) -> None:
        """Fix columns at a value: 1 if they are taken, 0 if they are excluded."""
        bound = np.full(len(positions), value)
        self._highs.changeColsBounds(len(positions), positions, bound, bound)

    def integer(self) -> highspy.Highs:
        """A copy of the program with integer variables."""
        highs = highspy.Highs()
        for name, value in OPTIONS.items():
            highs.setOptionValue(name, value)
        highs.setOptionValue("presolve", "on")
        highs.passModel(self._highs.getLp())
        count = len(self.rows)
        whole = np.full(count, highspy.HighsVarType.kInteger)
        highs.changeColsIntegrality(count, np.arange(count, dtype=np.int32), whole)
        return highs

    # ---- solving

    def solve(self) -> RelaxedSolution:
        """Solve the program from its last basis. Raises Spent."""
        limit_s = self._meter.left_s()
        if limit_s is not None:
            self._highs.setOptionValue("time_limit", self._highs.getRunTime() + limit_s)
        self._highs.run()
        steps = max(self._highs.getInfo().simplex_iteration_count, 0)
        self._meter.charge_lp(steps, len(self.rows))
        if self._highs.getModelStatus() not in SOLVED:
            raise Spent
        found = self._highs.getSolution()
        dual = np.maximum(-np.array(found.row_dual) * self._scale, 0.0)
        jobs, nodes = dual[: self._jobs], dual[self._jobs : self._jobs + self._nodes]
        functions, cliques = dual[self._facet_row], dual[self._clique_row]
        price: Floats = nodes[:, None] * np.arange(float(self._sizes))
        np.add.at(price, self._facet_node, functions[:, None] * self._facet)
        return RelaxedSolution(
            objective=-self._highs.getInfo().objective_function_value * self._scale,
            x=np.array(found.col_value),
            dual=jobs,
            price=price,
            whole=float(nodes @ self.columns.problem.capacity + functions.sum() + cliques.sum()),
            extra=self._extra(cliques),
        )

    def _extra(self, cliques: Floats) -> Floats | None:
        """By configuration: the sum of the prices of its cliques; None: there are no cliques."""
        if not self._clique:
            return None
        extra = np.zeros(len(self.columns.problem))
        for rows, price in zip(self._clique, cliques.tolist(), strict=True):
            if price:
                extra[rows] += price
        return extra


SOLVED = (highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kUnknown)
"""'unknown' is a vertex just outside the tolerances; its prices still prove a bound"""
