"""A gang: the GPUs that a job gets together, and how its workers synchronise.

Only the form is checked here; what a mode means for throughput, batches and progress is in
`shared/domain/gangs.py`.
"""

from collections.abc import Mapping
from functools import cache
from math import fsum

from schemas.base import Message
from schemas.ids import NodeId, RotaId
from schemas.numbers import Fraction, GpuCount, WholeNumber

Configuration = dict[NodeId, int]
"""GPUs by node; on one node the paper calls it aggregated, on several distributed"""

ROUNDING = 1e-6
"""tolerance for rounding in sums of shares"""


class Member(Message, frozen=True, gc=False):
    """The GPUs of a gang on one node."""

    node: NodeId
    gpus: GpuCount


Members = tuple[Member, ...]


class Mode(Message, frozen=True, kw_only=True, tag_field="mode"):
    """How workers synchronise. Fields by member are in the order of the gang's members."""

    @classmethod
    @cache
    def tag(cls) -> str:
        return str(cls.__struct_config__.tag)

    def misfit(self, members: Members) -> str:  # noqa: ARG002 - most modes look at them
        """Why the mode does not fit these members; empty if it does."""
        return ""


class Lockstep(Mode, frozen=True, kw_only=True, tag="lockstep"):
    """Every GPU takes a batch of the same size in every iteration, and waits for the slowest at its end."""


class Proportional(Mode, frozen=True, kw_only=True, tag="proportional"):
    """As lockstep, but each node takes samples in proportion to its speed (JPS, eq. 12 and 13)."""

    samples: tuple[WholeNumber, ...]
    """samples of one iteration, by member; a member's GPUs share them as evenly as whole samples allow"""

    def misfit(self, members: Members) -> str:
        if len(self.samples) != len(members):
            return f"samples of {len(self.samples)} nodes for {len(members)}"
        enough = all(samples >= one.gpus for samples, one in zip(self.samples, members, strict=True))
        return "" if enough else "fewer samples than GPUs on a node"


class Forked(Mode, frozen=True, kw_only=True, tag="forked"):
    """Each node trains a copy of the job alone; copies are merged when the placement ends (HadarE)."""

    shares: tuple[Fraction, ...]
    """share of the samples left, by member; if they sum to less than 1, some samples are left for later"""

    def misfit(self, members: Members) -> str:
        if len(self.shares) != len(members):
            return f"shares of {len(self.shares)} nodes for {len(members)}"
        fits = fsum(self.shares) <= 1.0 + ROUNDING and min(self.shares) > 0.0
        return "" if fits else "shares that are not above 0 or sum to more than 1"


class Relaxed(Mode, frozen=True, kw_only=True, omit_defaults=True, tag="relaxed"):
    """A round of the job is a fixed number of batches.

    A GPU computes its batches one after another (Hare, HLAS). Placements of one *rota* have the same members
    and share these GPUs in turns, as `turns` and `place` say.
    """

    tasks: tuple[tuple[WholeNumber, ...], ...]
    """batches of one round, by member and by GPU; only in a rota may a node have none"""
    rota: RotaId = RotaId("")
    """empty: no other job takes turns on its GPUs"""
    turns: WholeNumber = 1
    """rounds that it gets in a cycle of the rota; 0: its processes stand by and do not run"""
    place: WholeNumber = 0
    """orders the placements within the cycle, the lowest first"""

    def misfit(self, members: Members) -> str:
        if tuple(map(len, self.tasks)) != tuple(one.gpus for one in members):
            return "not one number of tasks for each GPU"
        if min(map(min, self.tasks)) < 0 or not any(map(any, self.tasks)):
            return "no task, or fewer than none on a GPU"
        if self.turns < 0 or self.place < 0:
            return "turns or a place below 0"
        if self.rota:
            return ""
        if (self.turns, self.place) != (1, 0):
            return "turns on GPUs of its own"
        return "" if all(map(any, self.tasks)) else "a node without a task"


Sync = Lockstep | Proportional | Forked | Relaxed

LOCKSTEP = Lockstep()
ONLY_LOCKSTEP = (Lockstep.tag(),)
"""the modes of a node, policy or job that lists none"""


class Gang(Message, frozen=True, omit_defaults=True, cache_hash=True):
    """The members, at least one, in the order of their nodes' ids; the first that computes leads the gang.

    Equal gangs have the same GPUs by node and synchronise in the same way. `sync` left out means lockstep.
    """

    members: Members
    sync: Sync = LOCKSTEP

    def __post_init__(self) -> None:
        """Raises ValueError; in a decoder this is a ValidationError."""
        last = ""
        for one in self.members:  # one plain loop, since simulations make hundreds of thousands of gangs
            if one.gpus < 1 or one.node <= last:
                raise ValueError(
                    "a gang has each node once, in the order of their ids, with at least one GPU"
                )
            last = one.node
        if not last:
            raise ValueError("a gang has at least one node")
        if self.sync is not LOCKSTEP and (misfit := self.sync.misfit(self.members)):
            raise ValueError(f"a {self.mode} gang with {misfit}")

    @classmethod
    def of(cls, configuration: Mapping[NodeId, int], sync: Sync = LOCKSTEP) -> "Gang":
        """Raises ValueError."""
        return cls(tuple([Member(node, configuration[node]) for node in sorted(configuration)]), sync)

    @property
    def mode(self) -> str:
        return self.sync.tag()

    @property
    def configuration(self) -> Configuration:
        """A new dict."""
        return {one.node: one.gpus for one in self.members}

    @property
    def nodes(self) -> tuple[NodeId, ...]:
        if len(self.members) == 1:  # as most gangs have; a simulation asks tens of millions of times
            return (self.members[0].node,)
        return tuple([one.node for one in self.members])

    @property
    def gpus(self) -> int:
        if len(self.members) == 1:
            return self.members[0].gpus
        return sum([one.gpus for one in self.members])

    @property
    def distributed(self) -> bool:
        return len(self.members) > 1

    def on(self, node: NodeId) -> int:
        """The gang's GPUs on a node; 0 if the node is no member."""
        for one in self.members:
            if one.node == node:
                return one.gpus
        return 0
