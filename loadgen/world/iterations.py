"""Some iterations of a gang, drawn: data times per process, the wait for the slowest, the time of each.

An iteration, for process i, with T_c of the whole gang:

    joint_i = max(T_b + tail·T_c, head·T_b + T_c)        the backward pass hides what it can of T_c
    pattern 1   own_i = T_f + max(T_d, joint_i + T_u)     data is fetched meanwhile
    pattern 2   own_i = T_f + T_d + joint_i + T_u
    T_w,i = max_j own_j − own_i,    T_iter = max_j own_j

No iteration can begin before the slowest process is through: nothing draws T_w.

A round of a relaxed gang (Hare), for process i with k_i tasks, each an iteration without an exchange:

    own_i = Σ over its tasks of own,    T_w,i = max_j own_j − own_i,    T_round = max_j own_j + T_c
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from loadgen.world.gang import ProcessTimes, Vector

COMPUTE_NOISE = 0.01
HIT_NOISE = 0.06
MISS_NOISE = 0.18
STEP_NOISE = 0.012
"""relative noise of a whole iteration: interrupts, clock changes, logging"""
SWITCH_S = 1.5e-4
"""of the training loop itself, once an iteration"""


class Exchange(msgspec.Struct, frozen=True):
    """How the gradients of an iteration leave."""

    seconds: float
    tail: float
    """share of it that has nothing to hide behind: the last bucket"""
    head: float
    """share of the backward pass that is over before it begins"""
    slowed: float
    """share of what hides behind the backward pass that makes it longer"""


NO_EXCHANGE = Exchange(0.0, 0.0, 0.0, 0.0)


class DrawnIterations(msgspec.Struct, frozen=True):
    """Rows are iterations, columns processes; seconds."""

    data_s: Vector
    wait_s: Vector
    forward_s: Vector
    backward_s: Vector
    iteration_s: Vector
    """one number an iteration"""


def draw(
    timing: ProcessTimes,
    exchange: Exchange,
    iterations: int,
    random: np.random.Generator,
    *,
    inputs: float = 0.0,
) -> DrawnIterations:
    """Iterations with an exchange in each; `inputs`: standard deviation of a batch's size."""
    parts = _parts(timing, exchange, iterations, random, inputs)
    slowest_s = np.maximum.reduce(parts.own_s, axis=1)
    return DrawnIterations(
        data_s=parts.data_s,
        wait_s=slowest_s[:, np.newaxis] - parts.own_s,
        forward_s=parts.forward_s,
        backward_s=parts.backward_s,
        iteration_s=(slowest_s + SWITCH_S) * parts.step_noise,
    )


class DrawnRounds(msgspec.Struct, frozen=True):
    """Rows are rounds, columns processes; seconds."""

    data_s: Vector
    """of a process's first task"""
    wait_s: Vector
    round_s: Vector
    """one number a round"""


def draw_rounds(
    timing: ProcessTimes,
    tasks: Sequence[int],
    communication_s: float,
    rounds: int,
    random: np.random.Generator,
    *,
    inputs: float = 0.0,
) -> DrawnRounds:
    """`tasks`: of one round, by process."""
    parts, busy_s = _busy(timing, tasks, rounds, random, inputs)
    slowest_s = busy_s.max(axis=1)
    return DrawnRounds(
        data_s=parts.data_s[:: max(tasks)],
        wait_s=slowest_s[:, np.newaxis] - busy_s,
        round_s=(slowest_s + communication_s) * parts.step_noise[:: max(tasks)],
    )


def draw_busy(
    timing: ProcessTimes,
    tasks: Sequence[int],
    rounds: int,
    random: np.random.Generator,
    *,
    inputs: float = 0.0,
) -> Vector:
    """Seconds that each process computes in a round; rows are rounds. `tasks`: of one round, by process."""
    parts, busy_s = _busy(timing, tasks, rounds, random, inputs)
    return busy_s * parts.step_noise[:: max(tasks), np.newaxis]


def _busy(
    timing: ProcessTimes, tasks: Sequence[int], rounds: int, random: np.random.Generator, inputs: float
) -> tuple["_Parts", Vector]:
    most = max(tasks)
    parts = _parts(timing, NO_EXCHANGE, rounds * most, random, inputs)
    own_s = (parts.own_s + SWITCH_S).reshape(rounds, most, len(tasks))
    there = np.arange(most)[:, np.newaxis] < np.asarray(tasks)
    return parts, np.where(there, own_s, 0.0).sum(axis=1)


class _Parts(msgspec.Struct, frozen=True):
    """Rows are iterations, columns processes; seconds."""

    data_s: Vector
    forward_s: Vector
    backward_s: Vector
    own_s: Vector
    step_noise: Vector
    """what interrupts and the like make of an iteration, a factor; one an iteration"""


def _parts(
    timing: ProcessTimes, exchange: Exchange, iterations: int, random: np.random.Generator, inputs: float
) -> _Parts:
    processes = len(timing.forward_s)
    noise = random.standard_normal((iterations, 2 * processes + 1))
    work = 1.0 + COMPUTE_NOISE * noise[:, :processes]
    if inputs:
        work *= np.maximum(1.0 + inputs * random.standard_normal((iterations, processes)), 0.2)
    data_s = _data(timing, noise[:, processes:-1], random)
    forward_s = timing.forward_s * work
    backward_s = timing.backward_s * work
    rest_s = _joint(backward_s, exchange) + timing.update_s
    if timing.model.pattern == 1:
        own_s = forward_s + np.maximum(data_s, rest_s)
    else:
        own_s = forward_s + data_s + rest_s
    step_noise = 1.0 + STEP_NOISE * np.abs(noise[:, -1])
    return _Parts(data_s, forward_s, backward_s, own_s, step_noise)


def _data(timing: ProcessTimes, noise: Vector, random: np.random.Generator) -> Vector:
    """Hits and misses. Processes of a node share its disk, so half of the misses strike them together."""
    on_time = timing.on_time
    if on_time is None:
        return timing.hit_s * (1.0 + HIT_NOISE * noise)
    chance = random.random((len(noise), len(timing.node) + len(timing.reporters)))
    own, nodes = chance[:, : len(timing.node)], chance[:, len(timing.node) :]
    late = (own > on_time) | (nodes.take(timing.node, axis=1) > on_time)
    drawn = np.where(
        late, timing.miss_s * (1.0 + MISS_NOISE * noise), timing.hit_s * (1.0 + HIT_NOISE * noise)
    )
    return np.maximum(drawn, 0.5 * timing.hit_s)


def _joint(backward_s: Vector, exchange: Exchange) -> Vector:
    if exchange.seconds == 0.0:
        return backward_s
    if exchange.slowed:
        backward_s = backward_s + exchange.slowed * np.minimum(exchange.seconds, backward_s)
    tail_s = exchange.tail * exchange.seconds
    return np.maximum(backward_s + tail_s, exchange.head * backward_s + exchange.seconds)
