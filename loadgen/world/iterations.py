"""Draws iterations of a gang: the data times of each process, its wait for the slowest, the whole time.

An iteration, for process i, with T_c of the whole gang:

    joint_i = max(T_b + tail·T_c, head·T_b + T_c)        the backward pass hides what it can of T_c
    pattern 1   own_i = T_f + max(T_d, joint_i + T_u)     data is fetched meanwhile
    pattern 2   own_i = T_f + T_d + joint_i + T_u
    T_w,i = max_j own_j − own_i,    T_iter = max_j own_j

T_w is not drawn. It follows, since no iteration can begin before the slowest process has ended the last.

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
LOOP_S = 1.5e-4
"""overhead of the training loop in each iteration"""


class Exchange(msgspec.Struct, frozen=True):
    """How the gradients of an iteration are exchanged."""

    seconds: float
    tail: float
    """share of the exchange that overlaps with no computation: the last bucket"""
    head: float
    """share of the backward pass that is over before the exchange begins"""
    slowed: float
    """share of the time of overlap by which the backward pass is longer"""


NO_EXCHANGE = Exchange(0.0, 0.0, 0.0, 0.0)


class DrawnIterations(msgspec.Struct, frozen=True):
    """Rows are processes, columns iterations; seconds."""

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
    slowest_s = np.maximum.reduce(parts.own_s, axis=0)
    return DrawnIterations(
        data_s=parts.data_s,
        wait_s=slowest_s - parts.own_s,
        forward_s=parts.forward_s,
        backward_s=parts.backward_s,
        iteration_s=(slowest_s + LOOP_S) * parts.step_noise,
    )


class DrawnRounds(msgspec.Struct, frozen=True):
    """Rows are processes, columns rounds; seconds."""

    data_s: Vector
    """data time of a process's first task"""
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
    """`tasks`: number of tasks in one round, by process."""
    parts, busy_s = _busy(timing, tasks, rounds, random, inputs)
    slowest_s = busy_s.max(axis=1)
    return DrawnRounds(
        data_s=parts.data_s[:, :: max(tasks)],
        wait_s=slowest_s - busy_s.T,
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
    """Seconds that each process computes in a round; rows are rounds. `tasks`: as in `draw_rounds`."""
    parts, busy_s = _busy(timing, tasks, rounds, random, inputs)
    return busy_s * parts.step_noise[:: max(tasks), np.newaxis]


def _busy(
    timing: ProcessTimes, tasks: Sequence[int], rounds: int, random: np.random.Generator, inputs: float
) -> tuple["_Parts", Vector]:
    """Busy seconds: rows are rounds, columns processes."""
    most = max(tasks)
    parts = _parts(timing, NO_EXCHANGE, rounds * most, random, inputs)
    own_s = (parts.own_s + LOOP_S).T.reshape(rounds, most, len(tasks))
    there = np.arange(most)[:, np.newaxis] < np.asarray(tasks)
    return parts, np.where(there, own_s, 0.0).sum(axis=1)


class _Parts(msgspec.Struct, frozen=True):
    """Rows are processes, columns iterations; seconds."""

    data_s: Vector
    forward_s: Vector
    backward_s: Vector
    own_s: Vector
    step_noise: Vector
    """factor on the time of each iteration, for interrupts and the like"""


def _parts(
    timing: ProcessTimes, exchange: Exchange, iterations: int, random: np.random.Generator, inputs: float
) -> _Parts:
    processes = len(timing.forward_s)
    noise = _by_process(random.standard_normal((iterations, 2 * processes + 1)))
    work = 1.0 + COMPUTE_NOISE * noise[:processes]
    if inputs:
        sizes = _by_process(random.standard_normal((iterations, processes)))
        work *= np.maximum(1.0 + inputs * sizes, 0.2)
    data_s = _data(timing, noise[processes:-1], random)
    forward_s = timing.forward_s[:, np.newaxis] * work
    backward_s = timing.backward_s[:, np.newaxis] * work
    rest_s = _joint(backward_s, exchange) + timing.update_s[:, np.newaxis]
    if timing.model.pattern == 1:
        own_s = forward_s + np.maximum(data_s, rest_s)
    else:
        own_s = forward_s + data_s + rest_s
    step_noise = 1.0 + STEP_NOISE * np.abs(noise[-1])
    return _Parts(data_s, forward_s, backward_s, own_s, step_noise)


def _data(timing: ProcessTimes, noise: Vector, random: np.random.Generator) -> Vector:
    """Loading times of hits and misses. Half of the misses come from a node's disk, for all its processes."""
    hit_s = timing.hit_s[:, np.newaxis]
    hits_s = hit_s * (1.0 + HIT_NOISE * noise)
    if timing.on_time is None:
        return hits_s
    on_time, processes = timing.on_time[:, np.newaxis], len(timing.node)
    chance = _by_process(random.random((noise.shape[1], processes + len(timing.reporters))))
    late = (chance[:processes] > on_time) | (chance[processes:].take(timing.node, axis=0) > on_time)
    misses_s = timing.miss_s[:, np.newaxis] * (1.0 + MISS_NOISE * noise)
    return np.maximum(np.where(late, misses_s, hits_s), 0.5 * hit_s)


def _by_process(drawn: Vector) -> Vector:
    """From a row per iteration, as drawn, to a row per process: numpy is quicker with few long rows."""
    return np.ascontiguousarray(drawn.T)


def _joint(backward_s: Vector, exchange: Exchange) -> Vector:
    if exchange.seconds == 0.0:
        return backward_s
    if exchange.slowed:
        backward_s = backward_s + exchange.slowed * np.minimum(exchange.seconds, backward_s)
    tail_s = exchange.tail * exchange.seconds
    return np.maximum(backward_s + tail_s, exchange.head * backward_s + exchange.seconds)
