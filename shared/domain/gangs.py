"""What each mode of synchronisation means: the only module that knows. Pure.

A gang is made of *parts*: workers that exchange gradients with one another, under one leader. Every mode
but `Forked` has one part. The throughput of a part follows from the samples that each GPU takes in an
iteration:

    iteration = max over GPUs of (samples taken / samples a second) + exchange
    throughput = Σ samples taken / iteration

So it is the slowest GPU's speed × GPUs for `Lockstep`, the sum of the speeds for `Proportional` shares (JPS,
eq. 13), and set by the GPU with the longest tasks for `Relaxed` (Hare without shared GPUs). A gang's
throughput is the sum over its parts.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec.structs import replace

from schemas.ids import NodeId, RotaId
from schemas.placement import (
    LOCKSTEP,
    ROUNDING,
    Configuration,
    Forked,
    Gang,
    Lockstep,
    Member,
    Members,
    Mode,
    Proportional,
    Relaxed,
)
from shared.domain.sums import plain_sum

SHARES_ALIKE = 0.05
"""relative change of a node's share from which on a job is restarted"""

MEMORY_SPARED = 0.05
"""share of a GPU's memory that samples above a batch leave free"""
BATCHES_AT_MOST = 64
"""most samples of one GPU, in batches, however little memory they take"""

Batches = tuple[tuple[int, ...], ...]
"""samples, or tasks, of one iteration, by member and GPU"""


class Meaning:
    """What `Lockstep` means; the other modes override what differs."""

    unit = "GPUs"
    """what `scale` counts"""
    observed = True
    """whether the estimator answers for such gangs, and learns from them"""
    paced = True
    """whether measurements of such a gang show the speed of its GPUs, not only an estimate's error"""
    resident = False
    """whether its processes stand by between two placements of the job"""
    fills_any_room = False
    """whether a job may run on fewer GPUs than its demand has"""
    copies = False
    """whether parts train independently, so that the others go on when one ends or is lost"""

    def keeps(self, present: Gang, wanted: Gang) -> bool:
        """Whether a job planned as `wanted`, which is in this mode, keeps running as `present`."""
        return present is wanted or present == wanted

    def rota(self, gang: Gang) -> RotaId:  # noqa: ARG002 - its GPUs are its own
        return RotaId("")

    def retimes(self, present: Gang, wanted: Gang) -> bool:  # noqa: ARG002 - it has no turns
        """Whether the job keeps running as `present`, with other turns."""
        return False

    def parts(self, gang: Gang) -> tuple[Gang, ...]:
        return (gang,)

    def batches(self, gang: Gang, batch_size: int) -> Batches:
        return tuple([(batch_size,) * one.gpus for one in gang.members])

    def tasks(self, gang: Gang) -> Batches:
        return tuple([(1,) * one.gpus for one in gang.members])

    def computing(self, gang: Gang) -> Gang:
        return gang

    def leader(self, part: Gang) -> NodeId:
        return part.members[0].node

    def scale(self, part: Gang) -> int:
        """Batches in a global batch: the number that a job's demand and its learning rates are about."""
        return part.gpus

    def misfit(self, part: Gang, batch_size: int) -> str:  # noqa: ARG002 - lockstep has no shares
        """Why a job of this batch size cannot run in this gang; empty: it can."""
        return ""

    def throughput(
        self, part: Gang, rate_of: Mapping[NodeId, float], batch_size: int, exchange_s: float
    ) -> float:
        """samples/s of a part; `exchange_s` as in the function `throughput`."""
        taken = self.batches(part, batch_size)
        pairs = zip(part.members, taken, strict=True)
        slowest_s = max(max(each) / rate_of[one.node] for one, each in pairs)
        return sum(map(sum, taken)) / (slowest_s + (exchange_s if part.gpus > 1 else 0.0))

    def in_words(self, gang: Gang) -> str:
        return "" if gang.sync == LOCKSTEP else gang.mode

    def share(self, gang: Gang, node: NodeId) -> float:  # noqa: ARG002 - it has one part
        return 1.0

    def quotas(self, gang: Gang, left: float, batch_size: int) -> dict[NodeId, float]:  # noqa: ARG002
        return {}

    def rest(self, members: Members, gang: Gang) -> Gang:  # noqa: ARG002 - only copies train on
        return Gang(members)


class OfProportional(Meaning):
    paced = False

    def keeps(self, present: Gang, wanted: Gang) -> bool:
        """Whether GPUs are the same and shares nearly the same: then a restart costs more than it gains."""
        if present.members != wanted.members or not isinstance(present.sync, Proportional):
            return False
        assert isinstance(wanted.sync, Proportional)
        pairs = list(zip(present.sync.samples, wanted.sync.samples, strict=True))
        same_batch = sum(old for old, _ in pairs) == sum(new for _, new in pairs)
        return same_batch and all(abs(new - old) < SHARES_ALIKE * old for old, new in pairs)

    def in_words(self, gang: Gang) -> str:
        assert isinstance(gang.sync, Proportional)
        return f"{gang.mode}, {':'.join(map(str, gang.sync.samples))} samples"

    def misfit(self, part: Gang, batch_size: int) -> str:
        taken, whole = global_batch(part, batch_size), part.gpus * batch_size
        return "" if taken == whole else f"{taken} samples an iteration in place of {whole}"

    def batches(self, gang: Gang, batch_size: int) -> Batches:  # noqa: ARG002 - the shares are samples
        assert isinstance(gang.sync, Proportional)
        pairs = zip(gang.sync.samples, gang.members, strict=True)
        return tuple(divided(samples, (1.0,) * one.gpus) for samples, one in pairs)


class OfForked(Meaning):
    observed = False
    paced = False
    copies = True

    def keeps(self, present: Gang, wanted: Gang) -> bool:  # noqa: ARG002 - its copies are merged between plans
        return False

    def parts(self, gang: Gang) -> tuple[Gang, ...]:
        return tuple(Gang((one,)) for one in gang.members)

    def share(self, gang: Gang, node: NodeId) -> float:
        shares = self._shares(gang)
        return shares[node] / plain_sum(shares.values())

    def quotas(self, gang: Gang, left: float, batch_size: int) -> dict[NodeId, float]:
        """Divides steps of `batch_size` samples by largest remainders, as HadarE does.

        If shares sum to less than 1, what they leave to later rounds takes part like one more copy.
        """
        shares = self._shares(gang)
        later = 1.0 - plain_sum(shares.values())
        weights = (*shares.values(), later if later > ROUNDING else 0.0)
        steps = divided(-int(-max(left, 0.0) // batch_size), weights)
        return {node: float(step * batch_size) for node, step in zip(shares, steps, strict=False)}

    def rest(self, members: Members, gang: Gang) -> Gang:
        shares = self._shares(gang)
        return Gang(members, Forked(shares=tuple(shares[one.node] for one in members)))

    @staticmethod
    def _shares(gang: Gang) -> dict[NodeId, float]:
        assert isinstance(gang.sync, Forked)
        return dict(zip(gang.nodes, gang.sync.shares, strict=True))


class OfRelaxed(Meaning):
    observed = False
    paced = False
    unit = "tasks"
    resident = True
    fills_any_room = True

    def tasks(self, gang: Gang) -> Batches:
        assert isinstance(gang.sync, Relaxed)
        return gang.sync.tasks

    def computing(self, gang: Gang) -> Gang:
        taken = {
            one.node: tuple(filter(None, tasks))
            for one, tasks in zip(gang.members, self.tasks(gang), strict=True)
            if any(tasks)
        }
        members = tuple(Member(node, len(tasks)) for node, tasks in taken.items())
        return Gang(members, replace(gang.sync, tasks=tuple(taken.values())))

    def leader(self, part: Gang) -> NodeId:
        """Rank 0 is on the first node that has a task."""
        pairs = zip(part.members, self.tasks(part), strict=True)
        return next(one.node for one, tasks in pairs if any(tasks))

    def batches(self, gang: Gang, batch_size: int) -> Batches:
        assert isinstance(gang.sync, Relaxed)
        return tuple(tuple(tasks * batch_size for tasks in each) for each in gang.sync.tasks)

    def scale(self, part: Gang) -> int:
        assert isinstance(part.sync, Relaxed)
        return sum(map(sum, part.sync.tasks))

    def rota(self, gang: Gang) -> RotaId:
        assert isinstance(gang.sync, Relaxed)
        return gang.sync.rota

    def in_words(self, gang: Gang) -> str:
        assert isinstance(gang.sync, Relaxed)
        turns = gang.sync.turns
        return (
            f"{gang.mode}, {turns} turn{'' if turns == 1 else 's'} a cycle" if gang.sync.rota else gang.mode
        )

    def keeps(self, present: Gang, wanted: Gang) -> bool:
        return super().keeps(present, wanted) or self.retimes(present, wanted)

    def retimes(self, present: Gang, wanted: Gang) -> bool:
        """Whether the gangs differ, and rota, GPUs, number of tasks and leader are the same.

        Then the learning rate is the same, and the same node counts the samples.
        """
        assert isinstance(wanted.sync, Relaxed)
        return (
            present != wanted
            and isinstance(present.sync, Relaxed)
            and present.sync.rota == wanted.sync.rota != ""
            and present.members == wanted.members
            and self.scale(present) == self.scale(wanted)
            and self.leader(present) == self.leader(wanted)
        )


MEANINGS: Mapping[type[Mode], Meaning] = {
    Lockstep: Meaning(),
    Proportional: OfProportional(),
    Forked: OfForked(),
    Relaxed: OfRelaxed(),
}

NAMES = tuple(sorted(mode.tag() for mode in MEANINGS))
"""names of all modes, as jobs and nodes list them"""


def known_modes(found: Collection[str]) -> tuple[str, ...]:
    """The known modes among the names, and lockstep. No names mean any mode, and give no names."""
    return tuple([name for name in NAMES if name in found or name == LOCKSTEP.tag()]) if found else ()


def merges_copies(modes: Collection[str]) -> bool:
    """Whether copies of a script that trains in these modes can be merged; no names mean any mode."""
    return not modes or Forked.tag() in modes


# ---- what holds in every mode


def parts(gang: Gang) -> tuple[Gang, ...]:
    return MEANINGS[type(gang.sync)].parts(gang)


def part_of(gang: Gang, node: NodeId) -> Gang:
    """The part that a node's worker belongs to. Raises StopIteration for a node that is no member."""
    return next(part for part in parts(gang) if part.on(node))


def leaders(gang: Gang) -> tuple[NodeId, ...]:
    """The nodes that count progress and write checkpoints: in each part the first node that computes."""
    return tuple([leader(part) for part in parts(gang)])


def leader(part: Gang) -> NodeId:
    """The node of rank 0."""
    return MEANINGS[type(part.sync)].leader(part)


def trained_by(part: Gang, *, meets: bool) -> tuple[NodeId, ...]:
    """The nodes that get the order to train; `meets`: the part's processes have to meet.

    If they need not meet, only the leader gets it, except in a rota: its jobs may be led by different nodes,
    and each of these must know all jobs that take turns.
    """
    return part.nodes if meets or rota(part) else (leader(part),)


def batches(gang: Gang, batch_size: int) -> Batches:
    """Samples of one iteration. `batch_size`: the job's batch on one GPU."""
    return tuple(each for part in parts(gang) for each in MEANINGS[type(part.sync)].batches(part, batch_size))


def tasks(gang: Gang) -> Batches:
    """The number of tasks that each GPU computes in an iteration, one after another."""
    return tuple(each for part in parts(gang) for each in MEANINGS[type(part.sync)].tasks(part))


def computing(gang: Gang) -> Gang:
    """The gang without the GPUs that take no samples."""
    return MEANINGS[type(gang.sync)].computing(gang)


def in_rota(gang: Gang) -> Relaxed | None:
    """The gang's turns on GPUs that it shares with others; None: its GPUs are its own."""
    return gang.sync if isinstance(gang.sync, Relaxed) and gang.sync.rota else None


def samples(gang: Gang, batch_size: int) -> tuple[int, ...]:
    """Samples of one iteration, by member."""
    return tuple([sum(each) for each in batches(gang, batch_size)])


def global_batch(gang: Gang, batch_size: int) -> int:
    """Samples of one iteration over all GPUs."""
    return sum(map(sum, batches(gang, batch_size)))


def learning_rate(gang: Gang, rates: Mapping[int, float]) -> float | None:
    """The job's learning rate in this gang, from its `rates` by GPU count; None: there is not exactly one."""
    found = {rates.get(_scale(part)) for part in parts(gang)}
    return found.pop() if len(found) == 1 else None


def misfit(gang: Gang, demand: Sequence[int], batch_size: int) -> str:
    """Why a job of this demand and batch size cannot run in this gang; empty: it can."""
    for part in parts(gang):
        scale = _scale(part)
        if scale not in demand:
            return f"{scale} {MEANINGS[type(part.sync)].unit}, not one of {tuple(demand)}"
    return shares_misfit(gang, batch_size)


def shares_misfit(gang: Gang, batch_size: int) -> str:
    """Why the gang's shares do not add up to the global batch; empty: they do."""
    wrongs = (MEANINGS[type(part.sync)].misfit(part, batch_size) for part in parts(gang))
    return next(filter(None, wrongs), "")


def in_words(gang: Gang) -> str:
    """How the gang's workers synchronise, for people; empty: in lockstep."""
    return MEANINGS[type(gang.sync)].in_words(gang)


def keeps(present: Gang, wanted: Gang) -> bool:
    """Whether a job planned as `wanted` keeps running as `present`, since a restart would gain nothing."""
    return MEANINGS[type(wanted.sync)].keeps(present, wanted)


def retimes(present: Gang, wanted: Gang) -> bool:
    """Whether a job planned as `wanted` keeps running as `present`, but with the turns of `wanted`."""
    return MEANINGS[type(wanted.sync)].retimes(present, wanted)


def rota(gang: Gang) -> RotaId:
    """The rota in which the gang takes turns on its GPUs; empty: its GPUs are its own."""
    return MEANINGS[type(gang.sync)].rota(gang)


def turning(gang: Gang) -> Gang:
    """The gang, with one turn if it has none (it is only resident)."""
    if isinstance(gang.sync, Relaxed) and not gang.sync.turns:
        return Gang(gang.members, replace(gang.sync, turns=1))
    return gang


def merges(gang: Gang) -> bool:
    """Whether the gang's parts are copies: each ends by itself, and they are merged when all have ended."""
    return MEANINGS[type(gang.sync)].copies


def with_copies(modes: Collection[type[Mode]]) -> frozenset[type[Mode]]:
    """All modes of a runner that ends workers at `StartOrdered.until`: one that runs lockstep runs copies."""
    forks = {Forked} if Lockstep in modes else set()
    return frozenset({*modes, *forks})


def observed(gang: Gang) -> bool:
    """Whether the estimator answers for such gangs, and learns from how they run."""
    return MEANINGS[type(gang.sync)].observed


def paced(gang: Gang) -> bool:
    """Whether measurements of such a gang show the speed of its GPUs."""
    return MEANINGS[type(gang.sync)].paced


def resident(gang: Gang) -> bool:
    """Whether processes stand by where such a gang was, and the job starts again there by a mere switch."""
    return MEANINGS[type(gang.sync)].resident


def fill_any_room(modes: Collection[type[Mode]]) -> bool:
    """Whether in one of these modes a job may run on fewer GPUs than its demand has."""
    return any(MEANINGS[mode].fills_any_room for mode in modes)


def without(gang: Gang, node: NodeId) -> Gang | None:
    """What is left of the gang when a node's worker has ended; None: nothing, since only copies train on."""
    rest = tuple(one for one in gang.members if one.node != node)
    return MEANINGS[type(gang.sync)].rest(rest, gang) if rest else None


def _scale(part: Gang) -> int:
    return MEANINGS[type(part.sync)].scale(part)


# ---- how fast


def throughput(gang: Gang, rates: Sequence[float], batch_size: int, exchange_s: float = 0.0) -> float:
    """samples/s of the whole gang.

    `rates`: samples/s of one GPU, by member. `exchange_s`: seconds to exchange the gradients of an iteration,
    which a part with one GPU does not do.
    """
    rate_of = dict(zip(gang.nodes, rates, strict=True))
    return plain_sum(
        MEANINGS[type(part.sync)].throughput(part, rate_of, batch_size, exchange_s) for part in parts(gang)
    )


def share(gang: Gang, node: NodeId) -> float:
    """The share of the gang's throughput that the part of a node makes."""
    return MEANINGS[type(gang.sync)].share(gang, node)


def pace(gang: Gang, measured: float, batch_size: int, wait_s: float = 0.0) -> float | None:
    """samples/s of one GPU of a lockstep gang, while it computes; `measured`: samples/s of the gang.

    `wait_s`: how much longer the GPU waits in an iteration than the slowest GPU does. It matters if the GPUs
    are unlike: otherwise a fast GPU would be remembered as no faster than the one that it waits for. None:
    `wait_s` is longer than an iteration, so the numbers do not belong together.
    """
    assert paced(gang), "unlike shares have no pace in common"
    if not wait_s:
        return measured / gang.gpus
    busy_s = gang.gpus * batch_size / measured - wait_s
    return batch_size / busy_s if busy_s > 0 else None


# ---- who does how much


def divided(whole: int, weights: Sequence[float]) -> tuple[int, ...]:
    """`whole` in proportion to `weights` (≥ 0, some above 0), by largest remainders; ties: the first.

    Each part is less than 1 off its exact share.
    """
    total = plain_sum(weights)
    exact = [whole * weight / total for weight in weights]
    shares = [int(share) for share in exact]
    order = sorted(range(len(exact)), key=lambda index: shares[index] - exact[index])
    for index in order[: whole - sum(shares)]:
        shares[index] += 1
    return tuple(shares)


def batch_most(batch_size: int, memory_share: float) -> int:
    """Samples of one GPU in an iteration that surely fit, if a batch took this share of the memory.

    Weights take the same memory for any batch, so memory grows more slowly than samples.
    """
    assert memory_share >= 0, "a share"
    batches = min(BATCHES_AT_MOST, (1.0 - MEMORY_SPARED) / memory_share) if memory_share else BATCHES_AT_MOST
    return max(batch_size, int(batches * batch_size))


def proportional(configuration: Configuration, rates: Mapping[NodeId, float], batch_size: int) -> Gang:
    """A gang with the global batch of as many GPUs in lockstep, divided by speed (JPS, eq. 12).

    `rates`: samples/s of one GPU, by node. Every GPU gets at least one sample.
    """
    members = Gang.of(configuration).members
    weights = [one.gpus * rates[one.node] for one in members]
    gpus = sum(one.gpus for one in members)
    spare = divided(gpus * batch_size, weights)
    if any(share < one.gpus for share, one in zip(spare, members, strict=True)):
        rest = divided(gpus * (batch_size - 1), weights)
        spare = tuple(share + one.gpus for share, one in zip(rest, members, strict=True))
    return Gang(members, Proportional(samples=spare))


def quotas(gang: Gang, left: float, batch_size: int) -> dict[NodeId, float]:
    """Samples that each copy has to do of `left`, in whole batches; empty: the gang has no copies.

    They sum to at least `left`, and to less than a batch more, except for what shares leave to later rounds.
    """
    return MEANINGS[type(gang.sync)].quotas(gang, left, batch_size)


def merged(base: float, counts: Iterable[float], samples: float) -> float:
    """Samples that a forked gang has done of `samples`, all copies together.

    `base`: samples in the checkpoint that all copies started from. `counts`: the newest number of samples of
    each copy, `base` included.
    """
    return min(base + plain_sum(count - base for count in counts), samples)
