"""Which job gets a copy on which node, as data, and what such an assignment is worth. Pure.

Data, m jobs and n nodes. A copy of job j takes W_j GPUs of one node and trains X_ji samples/s there. S_j: the
nodes of job j. Wanted: S with Σ_{j on i} W_j ≤ idle_i and |S_j| ≤ f_j, every node used while a job can use
it, that maximises

    Σ_j U_j(elapsed_j + o_j(S_j) + left_j / Σ_{i in S_j} X_ji)

o_j: seconds of a round that pass for a job without training: a checkpoint, a start, and the exchange of
weights, which grows with |S_j|. A job that stays on the one node that it has pays nothing.
"""

import msgspec
import numpy as np

from services.planner.policies.kit.completion import worth
from shared.domain.arrays import Flags, Floats, Ints

Maybe = Flags | bool
NOWHERE = -1
SLOWEST = 1e-12
"""samples/s: a speed that divides nothing by zero"""
BY_JOB = ("most", "gpus", "scale", "elapsed", "left", "start_s", "copy_s", "home")


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
    """of o (m): whatever the number of copies"""
    copy_s: Floats
    """of o (m): for each copy"""
    home: Ints
    """the one node on which the job runs unforked (m), or NOWHERE"""
    here: Flags
    """where jobs have GPUs now (m, n)"""

    def of(self, jobs: int | Ints) -> "Forking":
        """Only what is by job: of one, to be asked about many assignments, or of some, one for each."""
        return msgspec.structs.replace(self, **{name: getattr(self, name)[jobs] for name in BY_JOB})

    def overhead_s(self, copies: Ints | int, at_home: Maybe) -> Floats:
        """Seconds without training (…, m): o."""
        return np.where(at_home, 0.0, self.start_s + self.copy_s * copies)

    def value(self, speed: Floats | float, copies: Ints | int, at_home: Maybe) -> Floats:
        """U by job (…, m), given the Σ of its copies' speeds and their number; 0 without any."""
        rate = np.maximum(speed, SLOWEST)
        jct_s = self.elapsed + self.overhead_s(copies, at_home) + self.left / rate
        return np.where(copies > 0, worth(self.scale, jct_s), 0.0)

    def values(self, on: Flags) -> Floats:
        """U by job of an assignment (m, n)."""
        return self.value((self.speed * on).sum(axis=1), on.sum(axis=1), self.at_home(on))

    def at_home(self, on: Flags) -> Flags:
        """The jobs that run on nothing but the node that they have."""
        jobs = np.arange(len(self.home))
        at_home: Flags = (self.home != NOWHERE) & (on.sum(axis=1) == 1) & on[jobs, self.home]
        return at_home

    def free(self, on: Flags) -> Ints:
        """Idle GPUs by node beside an assignment."""
        free: Ints = self.idle - self.gpus @ on
        return free

    def able(self) -> Flags:
        """Where a copy would fit if nobody else were there (m, n)."""
        return (self.speed > 0) & (self.gpus[:, None] <= self.idle)


def nobody(forking: Forking) -> Flags:
    return np.zeros(forking.speed.shape, dtype=np.bool_)


def bound(forking: Forking) -> float:
    """Σ U if every job had the nodes that it likes best, as many as it may have, all to itself."""
    able = np.sort(np.where(forking.able(), forking.speed, 0.0), axis=1)[:, ::-1].cumsum(axis=1)
    place = np.minimum((able > 0).sum(axis=1), np.minimum(forking.most, able.shape[1])) - 1
    best = np.take_along_axis(able, np.maximum(place, 0)[:, None], axis=1)[:, 0]
    jct_s = forking.elapsed + forking.left / np.maximum(best, SLOWEST)
    return float(np.where(best > 0, worth(forking.scale, jct_s), 0.0).sum())
