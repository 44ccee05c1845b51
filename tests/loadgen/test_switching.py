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


TABLE_3 = {
    "vgg19": ((3288.94, 98.21), (4.01, 2.40), (2.77, 1.82), 149),
    "resnet50": ((5961.16, 97.37), (4.75, 5.46), (2.04, 3.71), 53),
    "inception-v3": ((7807.43, 96.99), (5.03, 2.39), (2.46, 1.43), 170),
    "bert-base": ((9016.99, 93.95), (12.57, 1.99), (5.03, 1.13), 440),
    "transformer": ((5257.17, 95.41), (10.34, 2.03), (5.79, 1.36), 420),
    "deepspeech2": ((5125.64, 94.15), (8.91, 1.59), (4.27, 1.25), 337),
    "fastgcn": ((5327.24, 98.47), (2.86, 7.56), (1.83, 4.53), 39),
    "graphsage": ((5213.54, 98.29), (2.42, 8.64), (0.96, 3.36), 28),
}
"""by model: ms and per cent of a task's time, as printed, for each way; the task, ms, by Hare's"""


def implied_s(ms: float, percent: float) -> float:
    """A task's own time, of which the switch is such a share."""
    return ms / 1000 * (100 / percent - 1)


def test_milliseconds_are_those_of_the_table() -> None:
    for model, (default, pipeswitch, hare, _) in TABLE_3.items():
        for way, (ms, _) in (("default", default), ("pipeswitch", pipeswitch), ("hare", hare)):
            assert 1000 * of(model, way) == pytest.approx(ms)  # type: ignore[arg-type]


def test_shares_of_the_table_do_not_agree_so_they_are_no_data() -> None:
    """For VGG-19 the three columns imply tasks of 60, 163 and 149 ms."""
    for *ways, task_ms in TABLE_3.values():
        assert 1000 * implied_s(*ways[2]) == pytest.approx(task_ms, abs=0.5)
    vgg19 = [1000 * implied_s(*way) for way in TABLE_3["vgg19"][:3]]
    assert vgg19 == pytest.approx([60, 163, 149], abs=1)


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
