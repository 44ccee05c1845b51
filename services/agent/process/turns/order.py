"""The order of turns on one GPU, as a state machine. Pure: messages of ranks in, whom to give the turn out.

Turns go round as the rota's cycle has them. A worker that is not ready when its turn comes is waited for a
moment, and then passed over until it is ready: it may load data, evaluate, or wait for its peers. One that is
to stop comes first, so that it gets to where it saves.
"""

import msgspec

from schemas.ids import PlacementId
from shared.domain.rota import cycle

PATIENCE_S = 1.0
"""how long a GPU waits for the worker whose turn it is"""
GIGABYTE = 1e9


class GpuMemory(msgspec.Struct, frozen=True):
    """Of the GPU, bytes; 0: not known."""

    kept: float = 0.0
    """what a worker keeps between its turns"""
    peak: float = 0.0
    """what it takes at most while it computes"""
    whole: float = 0.0


class Grant(msgspec.Struct, frozen=True):
    placement_id: PlacementId
    round: int


class _Resident(msgspec.Struct):
    turns: int
    place: int
    wants: int | None = None
    """the round for which it wants the turn"""
    passed: bool = True
    """it was not ready in its turn, and has not been ready since"""
    hurries: bool = False
    memory: GpuMemory = GpuMemory()
    leaves: bool = False
    """it has to go, for it does not fit beside the others"""


class TurnOrder:
    """Of the workers that share a GPU; one of them at most has the turn."""

    def __init__(self) -> None:
        self.holder: Grant | None = None
        self._residents: dict[PlacementId, _Resident] = {}
        self._cycle: list[PlacementId] = []
        self._next = 0
        self._waits_since: float | None = None
        self._unheard: set[PlacementId] = set()
        self._there: list[PlacementId] = []
        """workers whose memory counts, in the order in which they first were ready"""

    def __contains__(self, placement_id: PlacementId) -> bool:
        return placement_id in self._residents

    def joins(self, placement_id: PlacementId, turns: int, place: int, *, unheard: bool = False) -> None:
        """`unheard`: of an earlier life: it may have the turn, so nobody gets it before it has spoken."""
        self._residents[placement_id] = _Resident(turns, place)
        if unheard:
            self._unheard.add(placement_id)
        self._arrange()

    def changes(self, placement_id: PlacementId, turns: int, place: int) -> None:
        """From its next turn on."""
        if resident := self._residents.get(placement_id):
            resident.turns, resident.place = turns, place
            self._arrange()

    def leaves(self, placement_id: PlacementId) -> None:
        """A worker has gone from the GPU."""
        self._residents.pop(placement_id, None)
        self._unheard.discard(placement_id)
        self._there = [one for one in self._there if one != placement_id]
        if self.holder is not None and self.holder.placement_id == placement_id:
            self.holder = None
        self._arrange()

    def speaks(self, placement_id: PlacementId, *, holds: int | None) -> None:
        """On a new connection: what it said before may be lost, so what it says now counts."""
        self._unheard.discard(placement_id)
        resident = self._residents[placement_id]
        resident.wants = None
        if holds is not None and self.holder is None:
            self.holder = Grant(placement_id, holds)
        elif holds is None and self.holder is not None and self.holder.placement_id == placement_id:
            self.holder = None

    def wants(self, placement_id: PlacementId, number: int, memory: GpuMemory) -> dict[PlacementId, str]:
        """It is ready for this round. Who has to go for want of memory, and why; most often nobody.

        What a job takes while it computes is known once it has computed, so all are looked at every time.
        Those go that came last, and until they have gone nobody gets a turn.
        """
        resident = self._residents[placement_id]
        if resident.leaves:
            return {}
        resident.memory, resident.wants, resident.passed = memory, number, False
        if placement_id not in self._there:
            self._there.append(placement_id)
        out = {}
        while misfit := self._misfit(memory.whole):
            newest = self._there.pop()
            out[newest] = misfit
            self._residents[newest].leaves, self._residents[newest].wants = True, None
        return out

    def returns(self, placement_id: PlacementId, number: int) -> bool:
        """Whether it had the turn."""
        had = self.holder == Grant(placement_id, number)
        if had:
            self.holder = None
        return had

    def hurries(self, placement_id: PlacementId) -> None:
        if resident := self._residents.get(placement_id):
            resident.hurries = True

    def grant(self, now: float) -> Grant | None:
        """The worker that gets the turn now, if any."""
        if self.holder is not None or self._unheard or any(one.leaves for one in self._residents.values()):
            return None
        found = self._hurried() or self._in_turn(now)
        if found is not None:
            self._waits_since = None
            self.holder = found
            self._residents[found.placement_id].wants = None
        return found

    def wakeup(self) -> float | None:
        """The time until which the GPU waits for the worker whose turn it is."""
        return None if self._waits_since is None else self._waits_since + PATIENCE_S

    def _hurried(self) -> Grant | None:
        ready = [
            Grant(placement_id, one.wants)
            for placement_id, one in self._residents.items()
            if one.hurries and one.wants is not None
        ]
        return ready[0] if ready else None

    def _in_turn(self, now: float) -> Grant | None:
        for step in range(len(self._cycle)):
            at = (self._next + step) % len(self._cycle)
            resident = self._residents[self._cycle[at]]
            if resident.wants is not None:
                self._next = at + 1
                return Grant(self._cycle[at], resident.wants)
            if not resident.passed:
                if self._waits_since is None:
                    self._waits_since = now
                if now < self._waits_since + PATIENCE_S:
                    return None
                resident.passed, self._waits_since = True, None
        return None

    def _arrange(self) -> None:
        """The cycle anew; whoever comes next stays next, if it is still there."""
        rest = self._cycle[self._next :] + self._cycle[: self._next]
        scheduled = sorted(
            (one.place, placement_id) for placement_id, one in self._residents.items() if one.turns
        )
        keys = [placement_id for _, placement_id in scheduled]
        self._cycle = [keys[index] for index in cycle([self._residents[key].turns for key in keys])]
        following = next((key for key in rest if key in keys), None)
        self._next = self._cycle.index(following) if following is not None else 0
        self._waits_since = None

    def _misfit(self, whole: float) -> str:
        """All keep what they keep, and one of them computes."""
        memories = [self._residents[one].memory for one in self._there]
        if len(memories) < 2:  # noqa: PLR2004 - what one takes alone is no matter of turns
            return ""
        kept = sum(one.kept for one in memories)
        computes = max(max(one.peak - one.kept, 0.0) for one in memories)
        if not whole or kept + computes <= whole:
            return ""
        return (
            f"{len(memories)} jobs that take turns keep {kept / GIGABYTE:.1f} GB on a GPU, and one that "
            f"computes takes {computes / GIGABYTE:.1f} GB more, of {whole / GIGABYTE:.1f} GB"
        )
