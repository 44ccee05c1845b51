"""How near the estimates of scheduled runs were to what then ran, by arm and layer. Pure."""

from collections.abc import Iterator, Sequence
from math import fsum

from hopyard.lab.report.document import Figure, Part, Table
from hopyard.lab.report.figures import OfRun, mean_of, named, seed_by_seed
from hopyard.lab.runs.cases import Finished, arms_of
from hopyard.lab.runs.trials import Simulated
from shared.domain.accuracy import SHORTEST_S

LAYERS = ("entity", "type", "theory")
KINDS = tuple((layer, spread) for layer in LAYERS for spread in (False, True))
PLACES = {False: "aggregated", True: "distributed"}


def predicted(finished: Sequence[Finished], arms: str = "policy") -> Iterator[Part]:
    """Mean |estimated − measured| / measured, over executions of a minute and more; `arms`: what they are."""
    yield "## How near predictions were"
    yield (
        "Mean error of the estimate that a placement was chosen by, against what it then did; of placements "
        f"that ran for {SHORTEST_S:.0f} s and more, by the layer that answered. Mean over seeds; in "
        "brackets, how many there were."
    )
    headings = [f">{layer}, {PLACES[spread]}" for layer, spread in KINDS]
    rows = [[arm, *_cells(outcomes)] for arm, outcomes in arms_of(finished).items()]
    yield Table([arms, *headings], rows)


def figures_of(finished: Sequence[Finished]) -> list[Figure]:
    """The errors of every arm, and their differences from the first arm's at the same seed."""
    group, arms = finished[0].case.group, arms_of(finished)
    first = next(iter(arms))
    found = [
        (title, arm, kind, value)
        for arm, outcomes in arms.items()
        for kind in KINDS
        for title, value in (
            (group, mean_of(outcomes, _percent(kind))),
            (f"{group}, less {first}", seed_by_seed(outcomes, arms[first], _percent(kind))),
        )
        if arm != first or title == group
    ]
    return [
        named(title, arm, f"error, {layer}, {PLACES[spread]}, %", value)
        for title, arm, (layer, spread), value in found
        if value is not None
    ]


def _percent(kind: tuple[str, bool]) -> OfRun:
    def measured(outcome: Simulated) -> float | None:
        errors = _errors(outcome, kind[0], spread=kind[1])
        return 100 * fsum(errors) / len(errors) if errors else None

    return measured


def _cells(outcomes: Sequence[Simulated]) -> Iterator[str]:
    for layer, spread in KINDS:
        means = _means(outcomes, layer, spread=spread)
        count = sum(len(_errors(one, layer, spread=spread)) for one in outcomes)
        yield f"{fsum(means) / len(means):.1%} ({count})" if means else "–"


def _means(outcomes: Sequence[Simulated], layer: str, *, spread: bool) -> list[float]:
    """The mean error of each seed that has executions."""
    found = (_errors(one, layer, spread=spread) for one in outcomes)
    return [fsum(errors) / len(errors) for errors in found if errors]


def _errors(outcome: Simulated, layer: str, *, spread: bool) -> list[float]:
    return [
        one.error
        for one in outcome.executions
        if one.seconds >= SHORTEST_S and one.layer == layer and one.distributed == spread
    ]
