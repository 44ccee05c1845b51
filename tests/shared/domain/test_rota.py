"""How long a cycle of a rota takes: examples by hand, and what holds of every rota."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.ids import NodeId
from schemas.placement import Gang
from shared.domain.gangs import throughput
from shared.domain.rota import Turn, cycle, period

GPUS = 4
JOBS = 5
NEAR = 1e-9


def turn(*busy_s: float, exchange_s: float = 0.0, switch_s: float = 0.0, rounds: int = 1) -> Turn:
    return Turn(busy_s=(busy_s,), exchange_s=exchange_s, switch_s=switch_s, rounds=rounds)


A = turn(3 * 0.2, 0.6, exchange_s=0.08, switch_s=0.002)
B = turn(3 * 0.1, 0.15, exchange_s=0.04, switch_s=0.003)


def test_a_job_alone_waits_for_its_exchange() -> None:
    assert period([A]) == pytest.approx(0.680)
    assert period([B]) == pytest.approx(0.340)


def test_the_cycle_of_a_single_job_has_no_rounding_error() -> None:
    """A job alone takes as long to the bit as its gang would outside a rota."""
    alone = turn(0.1, 0.3, exchange_s=0.2, rounds=3)
    assert period([alone]) == 3 * (0.3 + 0.2)


def test_a_rota_of_two_hides_both_exchanges() -> None:
    fullest_gpu_s = 0.6 + 0.3 + 0.005
    assert period([A, B]) == pytest.approx(fullest_gpu_s)
    assert period([B, A]) == pytest.approx(fullest_gpu_s)


def test_rounds_of_one_job_that_follow_one_another_show_their_exchanges() -> None:
    assert period([A, msgspec.structs.replace(B, rounds=3)]) == pytest.approx(0.6 + 0.9 + 0.005 + 2 * 0.04)


def test_rounds_of_a_job_are_spread_over_the_cycle() -> None:
    assert cycle([1, 3]) == (1, 0, 1, 1)
    assert cycle([1, 1, 2]) == (2, 0, 1, 2)
    assert cycle([2, 2]) == (0, 1, 0, 1)
    assert cycle([2, 3]) == (1, 0, 1, 0, 1)


def test_a_third_job_fills_the_time_of_two_exchanges() -> None:
    one = turn(1.0, exchange_s=1.5)
    assert period([one, one]) == pytest.approx(2.5)
    assert period([one, one, turn(0.4)]) == pytest.approx(2.5)
    assert period([one, one, turn(0.6)]) == pytest.approx(2.6)


def test_drawn_rounds_follow_one_another() -> None:
    drawn = Turn(busy_s=tuple((float(number),) for number in range(12)), exchange_s=1.0, switch_s=0.0)
    assert period([drawn]) == pytest.approx(sum(range(6, 12)) / 6 + 1.0)


def test_jobs_on_gpus_of_their_own_do_not_wait_for_one_another() -> None:
    assert period([turn(1.0, 0.0), turn(0.0, 3.0)]) == pytest.approx(3.0)


seconds = st.integers(0, 2_000).map(lambda ms: ms / 1_000)


@st.composite
def turns(draw: st.DrawFn) -> Turn:
    busy_s = draw(st.lists(seconds, min_size=GPUS, max_size=GPUS).filter(any))
    rounds = draw(st.sampled_from([1, 1, 2, 3, 8]))
    return turn(*busy_s, exchange_s=draw(seconds), switch_s=draw(seconds), rounds=rounds)


rotas = st.lists(turns(), min_size=1, max_size=JOBS)


@given(rotas)
def test_no_cycle_is_shorter_than_the_work_of_one_gpu(rota: list[Turn]) -> None:
    loads = [sum(one.rounds * one.busy_s[0][gpu] for one in rota) for gpu in range(GPUS)]
    assert period(rota) >= max(loads) - NEAR


@given(rotas)
def test_no_cycle_is_shorter_than_the_rounds_of_a_job(rota: list[Turn]) -> None:
    assert period(rota) >= max(one.rounds * (max(one.busy_s[0]) + one.exchange_s) for one in rota) - NEAR


@given(rotas, turns())
def test_one_more_job_never_shortens_a_cycle(rota: list[Turn], more: Turn) -> None:
    assert period([*rota, more]) >= period(rota) - NEAR


@given(rotas, st.data())
def test_a_longer_time_never_shortens_a_cycle(rota: list[Turn], data: st.DataObject) -> None:
    number = data.draw(st.integers(0, len(rota) - 1))
    one = rota[number]
    longer = data.draw(
        st.sampled_from(
            [
                msgspec.structs.replace(one, exchange_s=one.exchange_s + 0.5),
                msgspec.structs.replace(one, switch_s=one.switch_s + 0.5),
                msgspec.structs.replace(one, busy_s=([busy + 0.5 * (busy > 0) for busy in one.busy_s[0]],)),
            ]
        )
    )
    assert period([*rota[:number], longer, *rota[number + 1 :]]) >= period(rota) - NEAR


@given(rotas, st.integers(1, 100))
def test_times_in_other_units_are_the_same_cycle(rota: list[Turn], factor: int) -> None:
    def scaled(one: Turn) -> Turn:
        busy_s = ([factor * busy for busy in one.busy_s[0]],)
        return Turn(
            busy_s=busy_s,
            exchange_s=factor * one.exchange_s,
            switch_s=factor * one.switch_s,
            rounds=one.rounds,
        )

    assert period([scaled(one) for one in rota]) == pytest.approx(factor * period(rota))


@given(st.integers(1, 8), st.floats(1.0, 1_000.0), st.floats(0.0, 1.0), st.integers(1, 256))
def test_a_job_alone_on_equal_gpus_takes_as_long_as_its_gang(
    gpus: int, rate: float, exchange_s: float, batch_size: int
) -> None:
    gang = Gang.of({NodeId("n"): gpus})
    exchange_s = exchange_s if gpus > 1 else 0.0
    iteration_s = gpus * batch_size / throughput(gang, [rate], batch_size, exchange_s)
    assert period([turn(*[batch_size / rate] * gpus, exchange_s=exchange_s)]) == pytest.approx(iteration_s)
