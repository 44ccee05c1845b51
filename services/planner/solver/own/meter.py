"""Meters the effort of a search: seconds of the wall clock, or modelled ones."""

from services.planner.solver.search import Search

LP_STEP_S = 5e-9
"""modelled seconds of one simplex iteration, for each column of the program"""
LP_FLAT = 6_000
"""columns that are added to a program's own to compute the cost of an iteration"""
DESCENT_S = 2e-8
"""modelled seconds of one step down the Lagrangian, for each gang that it looks at"""
PRICE_S = 6e-8
"""modelled seconds of pricing one configuration"""
CLIQUE_S = 1e-8
"""modelled seconds of looking for cliques, for each pair of configurations"""


class Spent(Exception):
    """The effort is spent; the best plan and bound found so far are the result."""


def lp_s(steps: int, columns: int) -> float:
    """Modelled seconds of `steps` simplex iterations on a program with this number of columns."""
    return steps * (LP_FLAT + columns) * LP_STEP_S


class Meter:
    """Charges the work of a search to its budget, and says what is left."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self._modelled = search.effort.modelled

    def left_s(self) -> float | None:
        """Seconds that are left; None with modelled effort. Raises Spent if none are left."""
        search = self._search
        if search.stopped.is_set() or search.budget.left_s <= 0:
            raise Spent
        return None if self._modelled else search.left_s

    def charge_lp(self, steps: int, columns: int) -> None:
        self._search.budget.charge(lp_s(steps, columns))

    def affords_lp(self, steps: int, columns: int) -> bool:
        """Whether the budget has room for this number of steps; always true on the wall clock."""
        return not self._modelled or lp_s(steps, columns) < self._search.budget.left_s

    def charge_descent(self, gangs: int) -> None:
        self._search.budget.charge(gangs * DESCENT_S)

    def charge_pricing(self, configurations: int) -> None:
        self._search.budget.charge(configurations * PRICE_S)

    def charge_cliques(self, columns: int) -> None:
        self._search.budget.charge(columns * columns * CLIQUE_S)
