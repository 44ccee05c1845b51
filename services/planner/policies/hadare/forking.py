"""The data of an assignment of copies to nodes, and what an assignment is worth. Pure.

There are m jobs and n nodes. A copy of job j takes W_j GPUs of one node and trains X_ji samples/s there. S_j
are the nodes of job j; it is a single node if that node cannot run copies. The assignment S shall keep
Σ_{j on i} W_j ≤ idle_i and |S_j| ≤ f_j, use every node by which a job gains, and maximise

    Σ_j U_j(elapsed_j + R_j · o_j(S_j) + left_j / X_j),   X_j = Σ_{i in S_j} X_ji,
    R_j = ⌈left_j / (X_j · (L_j − o_j))⌉

o_j are the seconds of a round in which the job does not train: a checkpoint, a start, and the exchange of
weights, which grows with |S_j|. Copies lose them in each of the R_j rounds that they need; a job on one node
loses them once, or not at all if it stays on the node that it has. L_j are the seconds from one merge to the
next.
"""

import msgspec
import numpy as np

from services.planner.policies.kit.completion import worth
from shared.domain.arrays import Flags, Floats, Ints

FlagOrFlags = Flags | bool
NOWHERE = -1
SLOWEST = 1e-12
"""samples/s: the least speed that is divided by"""
BRIEFEST_S = 1e-9
"""seconds of training in a round: the least that is divided by"""
BY_JOB = ("most", "gpus", "scale", "elapsed", "left", "start_s", "copy_s", "period_s", "home")
"""the fields of `Forking` that have an entry for each job and no other axis"""


class Forking(msgspec.Struct, frozen=True, kw_only=True):
    speed: Floats
    """X (m, n); 0: it cannot run there"""
    gpus: Ints
    """W (m), at least 1"""
    idle: Ints
    """GPUs (n)"""
    most: Ints
    """f (m): copies at most, at least 1"""
    scale: Floats
    """u (m), of U = u / completion time"""
    elapsed: Floats
    """seconds since submission (m)"""
    left: Floats
    """samples (m), above 0"""
    start_s: Floats
    """seconds of o that do not depend on the number of copies (m)"""
    copy_s: Floats
    """seconds of o for each copy (m)"""
    period_s: Floats
    """L (m): from one merge to the next; infinite for a job that is merged only when it ends"""
    lone_merges: bool = False
    """whether a job on one node is merged and restarted in every round, too"""
    home: Ints
    """the one node on which the job runs unforked (m), or NOWHERE"""
    here: Flags
    """where jobs have GPUs now (m, n)"""
    forks: Flags
    """the nodes that run copies (n); a job on any other node has that node alone"""

    def of(self, jobs: int | Ints) -> "Forking":
        """The same with the fields `BY_JOB` indexed by `jobs`.

        With one job, `value` can be asked about many numbers of copies; with several, about one for each.
        """
        return msgspec.structs.replace(self, **{name: getattr(self, name)[jobs] for name in BY_JOB})

    def overhead_s(self, speed: Floats | float, copies: Ints | int) -> Floats:
        """Seconds without training until the end (…, m), of jobs that restart: R · o."""
        round_s = self.start_s + self.copy_s * copies
        trains_s = np.maximum(self.period_s - round_s, BRIEFEST_S)
        rounds = np.maximum(np.ceil(self.left / (np.maximum(speed, SLOWEST) * trains_s)), 1.0)
        merges = self.lone_merges | (np.asarray(copies) > 1)
        return np.asarray(np.where(merges, rounds, 1.0) * round_s)

    def value(self, speed: Floats | float, copies: Ints | int, at_home: FlagOrFlags) -> Floats:
        """U by job (…, m), from the sum of its copies' speeds and their number; 0 without copies.

        `at_home`: the job runs on nothing but the node that it has, so it loses no time.
        """
        overhead_s = np.where(at_home, 0.0, self.overhead_s(speed, copies))
        jct_s = self.elapsed + overhead_s + self.left / np.maximum(speed, SLOWEST)
        return np.where(copies > 0, worth(self.scale, jct_s), 0.0)

    def values(self, on: Flags) -> Floats:
        """U by job of an assignment (m, n)."""
        return self.value((self.speed * on).sum(axis=1), on.sum(axis=1), self.at_home(on))

    def at_home(self, on: Flags) -> Flags:
        """By job: whether the assignment gives it only the node on which it runs now."""
        jobs = np.arange(len(self.home))
        at_home: Flags = (self.home != NOWHERE) & (on.sum(axis=1) == 1) & on[jobs, self.home]
        return at_home

    def free(self, on: Flags) -> Ints:
        """Idle GPUs by node that an assignment leaves."""
        free: Ints = self.idle - self.gpus @ on
        return free

    def alone(self, on: Flags) -> Flags:
        """By job: whether it is on a node that runs no copies, so it can have no further node."""
        return np.asarray((on & ~self.forks).any(axis=1))

    def able(self) -> Flags:
        """Where a copy of the job fits if no other job is there (m, n)."""
        return (self.speed > 0) & (self.gpus[:, None] <= self.idle)


def no_copies(forking: Forking) -> Flags:
    """The empty assignment (m, n)."""
    return np.zeros(forking.speed.shape, dtype=np.bool_)


def bound(forking: Forking) -> float:
    """An upper bound on Σ U: every job has its fastest nodes, as many as it may have, for itself."""
    able = np.sort(np.where(forking.able(), forking.speed, 0.0), axis=1)[:, ::-1].cumsum(axis=1)
    place = np.minimum((able > 0).sum(axis=1), np.minimum(forking.most, able.shape[1])) - 1
    best = np.take_along_axis(able, np.maximum(place, 0)[:, None], axis=1)[:, 0]
    jct_s = forking.elapsed + forking.left / np.maximum(best, SLOWEST)
    return float(np.where(best > 0, worth(forking.scale, jct_s), 0.0).sum())
