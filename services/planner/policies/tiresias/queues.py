"""The queues of discretised 2D-LAS (Tiresias, NSDI '19): demotion, promotion, order. Pure.

A job begins in the first of K queues and is demoted when its attained service (GPUs · running time)
passes the queue's threshold. With a promote knob P, a waiting job goes back to the first queue once it has
waited P times as long as it ran since it was there last; its service then counts from 0. Within a queue, jobs
are served in the order in which they started, waiting jobs behind running ones; or by Gittins index.

`authors` follows the authors' simulator where the paper says nothing, or something else:

- a job is demoted by one queue at an event, however much service it has;
- the next demotion comes after (threshold − running time) / GPUs seconds. This mixes seconds with GPU-seconds
  and is late for jobs of several GPUs, which keep their queue until then;
- jobs of equal Gittins index that came at the same time keep their order, whatever their ids;
- the waiting that counts for a promotion is all since the last promotion, not that since the job ran last.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from schemas.ids import JobId

NEARLY = 1e-6
"""seconds or GPU-seconds by which rounding may leave a job below a threshold that it has reached"""

Rank = Callable[[float], float]
"""from attained service to urgency"""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    thresholds: tuple[float, ...] = (3250.0, 7200.0)
    """GPU·s, or s without `by_gpus`; ascending"""
    by_gpus: bool = True
    promote_knob: float = 0.0
    """0: no job is promoted"""
    authors: bool = False


class JobFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What a job has held and waited up to now."""

    gpus: int
    submitted_at: float
    held_s: float
    """seconds for which it held GPUs"""
    held_gpu_s: float
    """GPU-seconds that it held"""
    waited_s: float
    """seconds for which it held none"""
    running: bool


class QueueEntry(msgspec.Struct, frozen=True, array_like=True):
    """A job in a queue, with the figures from which its service and its waiting count."""

    job_id: JobId
    since_s: float = 0.0
    """`held_s` at its last promotion"""
    since_gpu_s: float = 0.0
    """`held_gpu_s` at its last promotion"""
    since_waited_s: float = 0.0
    """`waited_s` when it last ran (`authors`: when it first ran after its last promotion); 0 without
    promotions"""


Queues = tuple[tuple[QueueEntry, ...], ...]


def service(entry: QueueEntry, seen: JobFigures, rules: Rules) -> float:
    """The service attained since the last promotion, in the unit of the thresholds."""
    if rules.by_gpus:
        return seen.held_gpu_s - entry.since_gpu_s
    return ran_since_s(entry, seen)


def ran_since_s(entry: QueueEntry, seen: JobFigures) -> float:
    return seen.held_s - entry.since_s


def advanced(queues: Queues, jobs: Mapping[JobId, JobFigures], rules: Rules) -> Queues:
    """The queues of now: ended jobs are gone, new jobs are in the first queue, and all due moves are made.

    `jobs`: all unfinished ones, in the order of their submission. Jobs enter their new queue in the order in
    which they reached its threshold; of those at one time, in the order of submission.
    """
    there, still = set(jobs), rules.promote_knob <= 0
    before = [[own for own in line if own.job_id in there] for line in _sized(queues, rules)]
    new = there.difference([own.job_id for line in before for own in line])
    before[0] += [QueueEntry(job_id) for job_id in jobs if job_id in new]
    lines: list[list[QueueEntry]] = [[] for _ in before]
    movers: dict[JobId, tuple[float, int, QueueEntry]] = {}
    for place, line in enumerate(before):
        if still and place == len(rules.thresholds):
            lines[place] = line
            break
        for own in line:
            target, moved = _moved(place, own, jobs[own.job_id], rules)
            if target == place:
                lines[place].append(moved)
            else:
                movers[own.job_id] = -_overdue_s(place, target, own, jobs[own.job_id], rules), target, moved
    in_turn = [movers[job_id] for job_id in jobs if job_id in movers] if len(movers) > 1 else movers.values()
    for _, target, moved in sorted(in_turn, key=lambda mover: mover[0]):
        lines[target].append(moved)
    return tuple(map(tuple, lines))


def in_order(
    queues: Queues, jobs: Mapping[JobId, JobFigures], rules: Rules, rank: Rank | None = None
) -> Queues:
    """The queues in the order in which they are served: unchanged, or each sorted by `rank`.

    Ties go to the earlier submission, then to the smaller id (`authors`: to the earlier place).
    """
    if rank is None:
        return queues

    def urgency(own: QueueEntry) -> tuple[float, float, str]:
        seen = jobs[own.job_id]
        tie = "" if rules.authors else own.job_id
        return -rank(service(own, seen, rules)), seen.submitted_at, tie

    return tuple(tuple(sorted(line, key=urgency)) for line in queues)


def settled(queues: Queues, running: Collection[JobId]) -> Queues:
    """The queues with running jobs before waiting ones, so that each is in the order of starts."""
    return tuple([_running_first(line, running) for line in queues])


def _running_first(line: Sequence[QueueEntry], running: Collection[JobId]) -> tuple[QueueEntry, ...]:
    waiting = [own for own in line if own.job_id not in running]
    return (*[own for own in line if own.job_id in running], *waiting) if waiting else tuple(line)


def next_move_in(
    queues: Queues, jobs: Mapping[JobId, JobFigures], running: Collection[JobId], rules: Rules
) -> float | None:
    """Seconds until the first demotion or promotion, if nothing else happens."""
    movable = queues if rules.promote_knob > 0 else queues[: len(rules.thresholds)]
    delays = [
        _delay_s(place, own, jobs[own.job_id], rules, runs=own.job_id in running)
        for place, line in enumerate(movable)
        for own in line
    ]
    return min([delay for delay in delays if 0 < delay < math.inf], default=None)


def _sized(queues: Queues, rules: Rules) -> Sequence[Sequence[QueueEntry]]:
    """The queues, or empty ones if their number is not that of the rules (other thresholds were in force)."""
    count = len(rules.thresholds) + 1
    return queues if len(queues) == count else ((),) * count


def _moved(place: int, own: QueueEntry, seen: JobFigures, rules: Rules) -> tuple[int, QueueEntry]:
    """The queue of a job from now on, and its entry there. `place`: its queue so far."""
    if place < len(rules.thresholds) and (seen.running or not rules.authors):
        place = _demoted(place, service(own, seen, rules), rules)
    may_rise = not seen.running and rules.promote_knob > 0 and _may_rise(place, own, seen, rules)
    if may_rise and _wait_left_s(own, seen, rules) <= NEARLY:
        return 0, QueueEntry(own.job_id, seen.held_s, seen.held_gpu_s, seen.waited_s)
    if rules.promote_knob > 0 and (ran_since_s(own, seen) <= 0 or (seen.running and not rules.authors)):
        own = QueueEntry(own.job_id, own.since_s, own.since_gpu_s, seen.waited_s)
    return place, own


def _demoted(place: int, attained: float, rules: Rules) -> int:
    steps = 1 if rules.authors else len(rules.thresholds)
    for threshold in rules.thresholds[place : place + steps]:
        if attained < threshold - NEARLY:
            break
        place += 1
    return place


def _overdue_s(place: int, target: int, own: QueueEntry, seen: JobFigures, rules: Rules) -> float:
    """How long ago a running job reached its new queue's threshold, rounded to milliseconds; `authors`: 0."""
    if target <= place or rules.authors or not seen.running:
        return 0.0
    past = service(own, seen, rules) - rules.thresholds[target - 1]
    return round(past / (seen.gpus if rules.by_gpus else 1), 3)


def _may_rise(place: int, own: QueueEntry, seen: JobFigures, rules: Rules) -> bool:
    return rules.promote_knob > 0 and place > 0 and ran_since_s(own, seen) > 0


def _wait_left_s(own: QueueEntry, seen: JobFigures, rules: Rules) -> float:
    """Seconds until the job has waited long enough to be promoted. The authors count whole seconds."""
    limit = ran_since_s(own, seen) * rules.promote_knob
    return (math.floor(limit) if rules.authors else limit) - (seen.waited_s - own.since_waited_s)


def _delay_s(place: int, own: QueueEntry, seen: JobFigures, rules: Rules, *, runs: bool) -> float:
    """Seconds until the job's next move; infinite if none is to come."""
    if runs and place < len(rules.thresholds):
        rate = seen.gpus if rules.by_gpus else 1
        if rules.authors:
            return float(math.ceil((rules.thresholds[place] - ran_since_s(own, seen)) / rate))
        return (rules.thresholds[place] - service(own, seen, rules)) / rate
    if not runs and _may_rise(place, own, seen, rules):
        return _wait_left_s(own, seen, rules)
    return math.inf
