"""How near the estimates of scheduled runs were to what then ran, by arm and layer. Pure."""

from collections.abc import Iterator, Sequence
from math import fsum

from hopyard.lab.report.document import Part, Table
from hopyard.lab.runs.cases import Finished, arms_of
from schemas.accuracy import Execution
from shared.domain.accuracy import SHORTEST_S

LAYERS = ("entity", "type", "theory")


def predicted(finished: Sequence[Finished]) -> Iterator[Part]:
    """Mean |estimated − measured| / measured, over executions of a minute and more."""
    yield "## How near predictions were"
    yield (
        "Mean error of the estimate that a placement was chosen by, against what it then did; of placements "
        f"that ran for {SHORTEST_S:.0f} s and more, by the layer that answered."
    )
    headings = [f">{layer}, {place}" for layer in LAYERS for place in ("aggregated", "distributed")]
    rows = []
    for arm, outcomes in arms_of(finished).items():
        ran = [one for each in outcomes for one in each.executions if one.seconds >= SHORTEST_S]
        rows.append([arm, *_cells(ran), str(len(ran))])
    yield Table(["policy", *headings, ">executions"], rows)


def _cells(ran: Sequence[Execution]) -> Iterator[str]:
    for layer in LAYERS:
        for distributed in (False, True):
            errors = [one.error for one in ran if one.layer == layer and one.distributed == distributed]
            yield f"{fsum(errors) / len(errors):.1%} ({len(errors)})" if errors else "–"
