"""How long a GPU takes to switch to a job whose processes stand by on its node."""

from functools import cache
from importlib import resources
from statistics import fmean

from msgspec import structs

from schemas.base import File
from schemas.jobs import Positive, Workload
from schemas.settings import Switching
from shared.runtime.files import parse

FILE = "switching.yaml"


class SwitchTimes(File, frozen=True, kw_only=True):
    """Milliseconds of a switch to a job of a model, by method."""

    model: str
    default: Positive
    pipeswitch: Positive
    hare: Positive


def switch_s(workload: Workload, switching: Switching) -> float:
    """Seconds of a switch to a job; for a model that was not measured, the mean of the others."""
    by_model, mean_s = _column(switching)
    return by_model.get(workload.model, mean_s)


@cache
def _column(switching: Switching) -> tuple[dict[str, float], float]:
    """Seconds by model, and their mean."""
    text = resources.files("loadgen.catalogue").joinpath(FILE).read_text("utf-8")
    rows = [structs.asdict(row) for row in parse(text, f"catalogue/{FILE}", list[SwitchTimes])]
    by_model = {row["model"]: row[switching] / 1000.0 for row in rows}
    return by_model, fmean(by_model.values())
