"""What a GPU takes from one job to the next: table III of the Hare paper."""

from typing import get_args

import pytest

from loadgen.workloads.mixes import mix_named
from loadgen.world.switching import switch_s
from schemas.jobs import Workload
from schemas.settings import Switching

WAYS: tuple[Switching, ...] = get_args(Switching)


def of(model: str, way: Switching) -> float:
    return switch_s(Workload(model=model, dataset="any", batch_size=1), way)


@pytest.mark.parametrize(("way", "mean_ms"), [("default", 5874.8), ("pipeswitch", 6.36), ("hare", 3.14)])
def test_a_model_that_is_not_in_the_table_takes_the_mean_of_its_column(
    way: Switching, mean_ms: float
) -> None:
    assert 1000 * of("unheard-of", way) == pytest.approx(mean_ms, abs=0.05 if way == "default" else 0.005)


@pytest.mark.parametrize("name", ["hare-table-2", "hare-table-2-short"])
def test_every_model_of_its_mixes_has_a_row_of_its_own(name: str) -> None:
    models = {one.model for one in mix_named(name).jobs}
    assert len(models) == 8
    for way in WAYS:
        assert of("unheard-of", way) not in {of(model, way) for model in models}


def test_the_paper_s_order_holds_for_every_model() -> None:
    for one in mix_named("hare-table-2").jobs:
        default, pipeswitch, hare = (of(one.model, way) for way in ("default", "pipeswitch", "hare"))
        assert default > 500 * pipeswitch > 500 * hare
