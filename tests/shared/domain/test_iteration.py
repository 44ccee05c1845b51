"""Hops eq. 1 and 2, against numbers worked out by hand."""

import msgspec
import numpy as np
import pytest

from schemas.settings import Settings
from shared.domain.iteration import DEPARTURES, OURS, communication_s, iteration_s, law_of, unhidden_share

GIGA = 1e9


@pytest.mark.parametrize(
    ("data_s", "exchange_s", "pattern", "expected"),
    [
        (0.1, 0.0, 1, 0.7 + 0.3),  # hidden: max(0.1, 0.5 + 0.2) + 0.3
        (0.9, 0.0, 1, 0.9 + 0.3),  # data are the bottleneck
        (0.1, 0.0, 2, 0.1 + 0.7 + 0.3),
        (0.1, 0.5, 1, 0.5 + 0.2 * 0.5 + 0.2 + 0.3),  # backward hides 0.8 of the exchange
        (0.1, 2.0, 1, 2.0 + 0.2 + 0.3),  # the exchange outlasts backward
        (0.1, 2.0, 2, 0.1 + 2.0 + 0.2 + 0.3),
    ],
)
def test_an_iteration_takes_as_long_as_equation_1_says(
    data_s: float, exchange_s: float, pattern: int, expected: float
) -> None:
    taken = iteration_s(
        data_s=data_s,
        forward_s=0.3,
        backward_s=0.5,
        update_s=0.2,
        communication_s=exchange_s,
        pattern=pattern,
    )
    assert taken == pytest.approx(expected)


def test_the_part_that_backward_cannot_hide_is_the_model_s_own() -> None:
    """0.3 + (0.5 + 0.7 · 0.5) + 0.2: more than the 0.5 of the exchange alone, or than data."""
    taken = iteration_s(
        data_s=0.1,
        forward_s=0.3,
        backward_s=0.5,
        update_s=0.2,
        communication_s=0.5,
        unhidden=0.7,
        pattern=1,
    )
    assert taken == pytest.approx(1.35)


@pytest.mark.parametrize(
    ("parameters", "bucket_bytes", "expected"),
    [
        (3.5e6, 25e6, 1.0),  # 14 MB: one bucket, nothing to hide behind
        (11.7e6, 25e6, 25 / 46.8),
        (138e6, 25e6, 0.2),  # as in the paper
        (3.5e6, 0.0, 0.2),
        (0.0, 25e6, 0.2),
    ],
)
def test_the_last_bucket_of_gradients_is_not_hidden(
    parameters: float, bucket_bytes: float, expected: float
) -> None:
    assert unhidden_share(parameters, bucket_bytes) == pytest.approx(expected)


def test_waiting_is_added_whole() -> None:
    taken = iteration_s(data_s=0.1, forward_s=0.3, backward_s=0.5, update_s=0.2, pattern=1, wait_s=0.4)
    assert taken == pytest.approx(1.4)


@pytest.mark.parametrize(
    ("gpus", "distributed", "expected"),
    [(1, False, 0.0), (2, False, 0.5), (4, False, 0.75), (2, True, 1.0), (16, True, 1.0)],
)
def test_gradients_travel_as_equation_2_says(gpus: int, distributed: bool, expected: float) -> None:  # noqa: FBT001
    """A quarter of a billion parameters at 4 bytes each over 1 GB/s."""
    taken = communication_s(
        parameters=0.25 * GIGA, gpus=float(gpus), distributed=distributed, bandwidth=1 * GIGA
    )
    assert taken == pytest.approx(expected)
    late = communication_s(
        parameters=0.25 * GIGA, gpus=gpus, distributed=distributed, bandwidth=1 * GIGA, latency_s=0.01
    )
    assert late == pytest.approx(expected + (0.01 if gpus > 1 else 0.0))


def test_to_the_letter_pattern_2_has_no_update() -> None:
    for pattern, expected in ((1, 0.7 + 0.3), (2, 0.1 + 0.5 + 0.3)):
        taken = iteration_s(
            data_s=0.1, forward_s=0.3, backward_s=0.5, update_s=0.2, pattern=pattern, law=law_of("update")
        )
        assert taken == pytest.approx(expected)


@pytest.mark.parametrize("word", DEPARTURES)
def test_each_equation_can_be_switched_to_the_letter_by_itself(word: str) -> None:
    every = msgspec.structs.asdict(law_of("all"))
    assert not any(every.values())
    [changed] = [name for name, ours in msgspec.structs.asdict(law_of(word)).items() if not ours]
    assert changed in every
    assert msgspec.convert({"equations_as_printed": f"{word} all"}, Settings)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"equations_as_printed": word + "x"}, Settings)


def test_unless_asked_no_equation_is_to_the_letter() -> None:
    assert all(msgspec.structs.asdict(OURS).values())
    assert law_of("") == OURS


def test_rows_give_the_same_together_as_alone() -> None:
    """Two rows of every argument: pattern 1 hides 0.1 s of data, pattern 2 does not."""
    taken = iteration_s(
        data_s=np.array([0.1, 0.1]),
        forward_s=np.array([0.3, 0.3]),
        backward_s=np.array([0.5, 0.5]),
        update_s=np.array([0.2, 0.2]),
        pattern=np.array([1, 2]),
    )
    assert taken == pytest.approx([1.0, 1.1])
