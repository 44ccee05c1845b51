"""HLAS round by round, as the paper has it: decisions at the end of every round, groups that are fixed.

The policy decides from one event to the next, and assumes that its decisions repeat in between. Here they do
not: a group whose job has ended its round goes to the head of the first queue, whoever that is.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from services.planner.policies.hlas.queues import queue_of
from services.planner.policies.hlas.service import Claimant, served
from services.planner.policies.hlas.tasks import earliest_end, groups_needed
from tests.services.planner.policies.hlas.hlas_builders import Toy

Foresee = Callable[[str, int], int]
"""rounds that a job runs further, from so many on"""


Serve = Callable[[Sequence[Claimant], Sequence[int]], list[tuple[int, ...]]]
"""groups by job in the order of the queues, of what they hold and what is idle"""


class Served(NamedTuple):
    at: float
    job: str
    groups: tuple[int, ...]


class Exact(NamedTuple):
    ends: dict[str, float]
    rounds: list[Served]


def round_exact(
    groups: Sequence[Sequence[int]],
    jobs: Mapping[str, Toy],
    thresholds: Sequence[float],
    foresee: Foresee = lambda _name, _rounds: 0,
    *,
    enters_anew: bool = False,
) -> Exact:
    """`groups`: GPUs of each; `enters_anew`: who stays in its queue goes to its end after every round."""
    gpus, yard = sum(map(len, groups)), yardsticks(jobs, len(groups))
    queued: dict[str, tuple[int, float]] = {}
    ran, until = dict.fromkeys(jobs, 0), {name: foresee(name, 0) for name in jobs}
    busy: dict[str, tuple[float, tuple[int, ...]]] = {}
    found = Exact({}, [])
    now = 0.0
    while len(found.ends) < len(jobs):
        ended = [name for name, (end, _) in busy.items() if end <= now + 1e-9]
        for name in ended:
            del busy[name]
            ran[name] += 1
            if ran[name] == jobs[name].rounds:
                found.ends[name] = now
            elif ran[name] == until[name]:
                until[name] += foresee(name, ran[name])
        for name, one in jobs.items():
            if one.arrives_at <= now + 1e-9 and name not in found.ends and name not in busy:
                size_s = max(ran[name], until[name]) * yard[name]
                due = queue_of(size_s, thresholds)
                if name not in queued or due > queued[name][0] or (enters_anew and name in ended):
                    queued[name] = due, now
        waiting = [name for name in queued if name not in busy and name not in found.ends]
        waiting.sort(key=lambda name: (queued[name][0], -max(until[name] - ran[name], 0), queued[name][1]))
        held = {group for _, taken in busy.values() for group in taken}
        idle = [group for group in range(len(groups)) if group not in held]
        for name in waiting:
            one, need = jobs[name], groups_needed(jobs[name].tasks, gpus, len(groups))
            taken, idle = tuple(idle[:need]), idle[need:]
            if not taken:
                break
            busy[name] = now + round_s(one, groups, taken), taken
            found.rounds.append(Served(now, name, taken))
        arrivals = [one.arrives_at for one in jobs.values() if one.arrives_at > now + 1e-9]
        now = min([*arrivals, *(end for end, _ in busy.values())], default=now)
    return found


def whole_rounds(
    groups: Sequence[Sequence[int]],
    jobs: Mapping[str, Toy],
    thresholds: Sequence[float],
    serve: Serve = served,
) -> dict[str, float]:
    """Ends of jobs where `serve` decides at events, as the policy does, and no round is cut short."""
    gpus, yard = sum(map(len, groups)), yardsticks(jobs, len(groups))
    queued: dict[str, tuple[int, float]] = {}
    ran, owned, ends = dict.fromkeys(jobs, 0), dict[str, tuple[int, ...]](), dict[str, float]()
    busy: dict[str, tuple[float, tuple[int, ...]]] = {}
    now = 0.0
    while len(ends) < len(jobs):
        before = dict(queued), len(ends)
        for name in [name for name, (end, _) in busy.items() if end <= now + 1e-9]:
            del busy[name]
            ran[name] += 1
            if ran[name] == jobs[name].rounds:
                ends[name] = now
                owned.pop(name, None)
        for name, one in jobs.items():
            if one.arrives_at <= now + 1e-9 and name not in ends and name not in busy:
                due = queue_of(ran[name] * yard[name], thresholds)
                if name not in queued or due > queued[name][0]:
                    queued[name] = due, now
        order = sorted((name for name in queued if name not in ends), key=lambda name: queued[name])
        if before != (queued, len(ends)):
            needs = {name: groups_needed(jobs[name].tasks, gpus, len(groups)) for name in order}
            owned = _dealt(needs, owned, len(groups), serve)
        computing = {group for _, taken in busy.values() for group in taken}
        for name in [name for name in order if name in owned and name not in busy]:
            free = tuple(group for group in owned[name] if group not in computing)
            if free:
                computing.update(free)
                busy[name] = now + round_s(jobs[name], groups, free), free
        arrivals = [one.arrives_at for one in jobs.values() if one.arrives_at > now + 1e-9]
        now = min([*arrivals, *(end for end, _ in busy.values())], default=now)
    return ends


def _dealt(
    needs: Mapping[str, int], owned: Mapping[str, tuple[int, ...]], groups: int, serve: Serve
) -> dict[str, tuple[int, ...]]:
    """`needs`: in order."""
    held = {group for taken in owned.values() for group in taken}
    usable = np.ones(groups, dtype=np.bool_)
    claimants = [Claimant(need=need, usable=usable, held=owned.get(name, ())) for name, need in needs.items()]
    got = serve(claimants, [group for group in range(groups) if group not in held])
    return {name: taken for name, taken in zip(needs, got, strict=True) if taken}


def dealt_anew(order: Sequence[Claimant], idle: Sequence[int]) -> list[tuple[int, ...]]:
    """The first in order has what it needs, whoever runs: its own groups first, then any."""
    free = sorted({*idle, *(group for one in order for group in one.held)})
    found = []
    for one in order:
        own = sorted(free, key=lambda group, held=one.held: group not in held)[: one.need]  # type: ignore[misc]
        free = [group for group in free if group not in own]
        found.append(tuple(sorted(own)))
    return found


def yardsticks(jobs: Mapping[str, Toy], groups: int) -> dict[str, float]:
    """T̄."""
    return {name: one.tasks * groups / sum(1.0 / each for each in one.task_s) for name, one in jobs.items()}


def round_s(one: Toy, groups: Sequence[Sequence[int]], taken: Sequence[int]) -> float:
    times = [one.task_s[gpu] for gpu in sorted(gpu for group in taken for gpu in groups[group])]
    counts = earliest_end(times, one.tasks)
    return max(count * each for count, each in zip(counts, times, strict=True))


def task_exact(jobs: Mapping[str, Toy], thresholds: Sequence[float]) -> dict[str, float]:
    """Ends of jobs where every GPU is a group and takes one task at a time, as algorithms 1 to 3 have it."""
    gpus = len(next(iter(jobs.values())).task_s)
    yard = {name: one.tasks * gpus / sum(1.0 / each for each in one.task_s) for name, one in jobs.items()}
    ran, unstarted = dict.fromkeys(jobs, 0), {name: one.tasks for name, one in jobs.items()}
    entered = {name: (0, one.arrives_at) for name, one in jobs.items()}
    busy: dict[int, tuple[float, str]] = {}
    ends: dict[str, float] = {}
    now = 0.0
    while len(ends) < len(jobs):
        busy = {gpu: task for gpu, task in busy.items() if task[0] > now}
        computing = {name for _, name in busy.values()}
        for name, one in jobs.items():
            if name not in ends and name not in computing and not unstarted[name]:
                ran[name], unstarted[name] = ran[name] + 1, one.tasks
                due = queue_of(ran[name] * yard[name], thresholds)
                entered[name] = (due, now) if due > entered[name][0] else entered[name]
                if ran[name] == one.rounds:
                    ends[name], unstarted[name] = now, 0
        for gpu in sorted(set(range(gpus)) - busy.keys()):
            ready = [name for name, one in jobs.items() if one.arrives_at <= now and unstarted[name]]
            if ready:
                first = min(
                    ready,
                    key=lambda name: (
                        entered[name][0],
                        unstarted[name] == jobs[name].tasks,
                        entered[name][1],
                    ),
                )
                unstarted[first] -= 1
                busy[gpu] = now + jobs[first].task_s[gpu], first
        later = [one.arrives_at for one in jobs.values() if one.arrives_at > now]
        now = min([*later, *(end for end, _ in busy.values())], default=now)
    return ends
