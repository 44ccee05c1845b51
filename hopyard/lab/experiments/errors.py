"""How near the estimates of scheduled runs were to what then ran, by arm and layer. Pure."""

from collections.abc import Iterator, Sequence
from math import fsum

from hopyard.lab.report.document import Figure, Part, Table
from hopyard.lab.report.statistics import summary
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
    return [
        Figure(
            group=finished[0].case.group,
            arm=arm,
            measure=f"error, {layer}, {PLACES[spread]}",
            unit="%",
            mean=found.mean,
            half_width=found.half_width,
            values=found.values,
        )
        for arm, outcomes in arms_of(finished).items()
        for layer, spread in KINDS
        if (means := _means(outcomes, layer, spread=spread))
        for found in [summary([100 * mean for mean in means])]
    ]


def _cells(outcomes: Sequence[Simulated]) -> Iterator[str]:
    for layer, spread in KINDS:
        means = _means(outcomes, layer, spread=spread)
        count = sum(len(_errors(one, layer, spread=spread)) for one in outcomes)
        yield f"{fsum(means) / len(means):.1%} ({count})" if means else "–"


def _means(outcomes: Sequence[Simulated], layer: str, *, spread: bool) -> list[float]:
    """One a seed that has any."""
    found = (_errors(one, layer, spread=spread) for one in outcomes)
    return [fsum(errors) / len(errors) for errors in found if errors]


def _errors(outcome: Simulated, layer: str, *, spread: bool) -> list[float]:
    return [
        one.error
        for one in outcome.executions
        if one.seconds >= SHORTEST_S and one.layer == layer and one.distributed == spread
    ]
