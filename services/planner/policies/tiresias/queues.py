"""The queues of discretised 2D-LAS (Tiresias, NSDI '19): demotion, promotion, order. Pure.

A job begins in the first of K queues and is demoted when its attained service (GPUs · running time)
passes the queue's threshold. With a promote knob P a waiting job that has run goes back to the first
queue once it has waited P times as long as it ran since it was there last; its service then counts from
nothing. Within a queue jobs are served in the order in which they started, those that wait behind those
that run; or by Gittins index.

`authors` follows their simulator in what the paper does not say, or says otherwise:

- one demotion an event, whatever the service;
- the next demotion is looked for after (threshold − running time) / GPUs seconds, which mixes seconds
  with GPU-seconds and is late for jobs of several GPUs: until then they keep their queue;
- jobs of equal Gittins index that came at the same time keep their order, whatever their ids;
- waiting adds up over all stretches since the last promotion, rather than since the job ran last.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from schemas.ids import JobId

NEARLY = 1e-6
"""seconds or GPU-seconds: what rounding may take from a threshold that was waited for"""

Rank = Callable[[float], float]
"""from attained service to urgency"""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    thresholds: tuple[float, ...] = (3250.0, 7200.0)
    """GPU·s, or s without `by_gpus`; ascending"""
    by_gpus: bool = True
    promote_knob: float = 0.0
    """0: nobody is promoted"""
    authors: bool = False


class JobFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A job's figures up to now."""

    gpus: int
    submitted_at: float
    held_s: float
    """time for which it held GPUs"""
    held_gpu_s: float
    waited_s: float
    """time for which it did not"""
    running: bool


class Standing(msgspec.Struct, frozen=True, array_like=True):
    """A job's place in the queues; the three figures are what it had when they last began to count."""

    job_id: JobId
    since_s: float = 0.0
    """running time, at its last promotion"""
    since_gpu_s: float = 0.0
    """GPU time, likewise"""
    since_waited_s: float = 0.0
    """waiting, when it last ran (`authors`: when it first ran after its last promotion); 0 where nobody is
    promoted"""


Queues = tuple[tuple[Standing, ...], ...]


def service(standing: Standing, seen: JobFigures, rules: Rules) -> float:
    """Attained since the last promotion."""
    if rules.by_gpus:
        return seen.held_gpu_s - standing.since_gpu_s
    return ran_s(standing, seen)


def ran_s(standing: Standing, seen: JobFigures) -> float:
    return seen.held_s - standing.since_s


def advanced(queues: Queues, jobs: Mapping[JobId, JobFigures], rules: Rules) -> Queues:
    """The queues now: without those that ended, with those that came, and with all moves due.

    `jobs`: all unfinished ones, in the order of their submission. They move in the order in which they came
    to, those that did at one time in that of their submission.
    """
    there, still = set(jobs), rules.promote_knob <= 0
    before = [[own for own in line if own.job_id in there] for line in _sized(queues, rules)]
    new = there.difference([own.job_id for line in before for own in line])
    before[0] += [Standing(job_id) for job_id in jobs if job_id in new]
    lines: list[list[Standing]] = [[] for _ in before]
    movers: dict[JobId, tuple[float, int, Standing]] = {}
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
    """The queues as they are served: as they stand, or each by its jobs' Gittins index.

    Ties go to the earlier submission, then to the smaller id (`authors`: to the earlier place).
    """
    if rank is None:
        return queues

    def urgency(own: Standing) -> tuple[float, float, str]:
        seen = jobs[own.job_id]
        tie = "" if rules.authors else own.job_id
        return -rank(service(own, seen, rules)), seen.submitted_at, tie

    return tuple(tuple(sorted(line, key=urgency)) for line in queues)


def settled(queues: Queues, running: Collection[JobId]) -> Queues:
    """Those that run stand before those that wait: FIFO by start."""
    return tuple([_running_first(line, running) for line in queues])


def _running_first(line: Sequence[Standing], running: Collection[JobId]) -> tuple[Standing, ...]:
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


def _sized(queues: Queues, rules: Rules) -> Sequence[Sequence[Standing]]:
    """As many queues as the rules have: those of other thresholds begin anew."""
    count = len(rules.thresholds) + 1
    return queues if len(queues) == count else ((),) * count


def _moved(place: int, own: Standing, seen: JobFigures, rules: Rules) -> tuple[int, Standing]:
    """Where the job stands from now on."""
    if place < len(rules.thresholds) and (seen.running or not rules.authors):
        place = _demoted(place, service(own, seen, rules), rules)
    may_rise = not seen.running and rules.promote_knob > 0 and _may_rise(place, own, seen, rules)
    if may_rise and _wait_left_s(own, seen, rules) <= NEARLY:
        return 0, Standing(own.job_id, seen.held_s, seen.held_gpu_s, seen.waited_s)
    if rules.promote_knob > 0 and (ran_s(own, seen) <= 0 or (seen.running and not rules.authors)):
        own = Standing(own.job_id, own.since_s, own.since_gpu_s, seen.waited_s)
    return place, own


def _demoted(place: int, attained: float, rules: Rules) -> int:
    steps = 1 if rules.authors else len(rules.thresholds)
    for threshold in rules.thresholds[place : place + steps]:
        if attained < threshold - NEARLY:
            break
        place += 1
    return place


def _overdue_s(place: int, target: int, own: Standing, seen: JobFigures, rules: Rules) -> float:
    """How long ago, in whole milliseconds, a running job came to its new queue (`authors`: just now)."""
    if target <= place or rules.authors or not seen.running:
        return 0.0
    past = service(own, seen, rules) - rules.thresholds[target - 1]
    return round(past / (seen.gpus if rules.by_gpus else 1), 3)


def _may_rise(place: int, own: Standing, seen: JobFigures, rules: Rules) -> bool:
    return rules.promote_knob > 0 and place > 0 and ran_s(own, seen) > 0


def _wait_left_s(own: Standing, seen: JobFigures, rules: Rules) -> float:
    """Until the job has waited long enough to be promoted. The authors count whole seconds."""
    limit = ran_s(own, seen) * rules.promote_knob
    return (math.floor(limit) if rules.authors else limit) - (seen.waited_s - own.since_waited_s)


def _delay_s(place: int, own: Standing, seen: JobFigures, rules: Rules, *, runs: bool) -> float:
    """Until the job's next move; infinite if it has none before it."""
    if runs and place < len(rules.thresholds):
        rate = seen.gpus if rules.by_gpus else 1
        if rules.authors:
            return float(math.ceil((rules.thresholds[place] - ran_s(own, seen)) / rate))
        return (rules.thresholds[place] - service(own, seen, rules)) / rate
    if not runs and _may_rise(place, own, seen, rules):
        return _wait_left_s(own, seen, rules)
    return math.inf
