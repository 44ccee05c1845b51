"""The order of turns on one GPU, as a state machine.

Pure: messages of ranks in, the next holder of the turn out. A clock counts the cycles of the rota. Turns of
a worker with n of them in a cycle are due at (i + 1/2) / n, for i = 0, 1, 2, … (as in `rota.cycle`), and the
turn that is due first comes first. After each round the ranks of a gang agree when their next turns are due:
at the latest time that one of their GPUs says. So all GPUs of a rota go through the rounds in the same order,
as in `rota.period`, although each decides alone (docs/adr/0052).

The GPU waits a moment for a worker that is not ready in its turn, then passes it over until it is ready: it
may be loading data, evaluating, or waiting for its peers. A worker that was ordered to stop comes first, so
that it soon reaches the point where it saves.
"""

import msgspec

from schemas.ids import PlacementId

PATIENCE_S = 1.0
"""how long a GPU waits for the worker whose turn it is"""
GIGABYTE = 1e9
CYCLE = 1_680
"""ticks of the clock in a cycle; turns of up to 8 in a cycle are due at whole numbers"""
DUE_MAX = 10**15
"""a turn that a rank says is due later is due then, so that the clock can go on"""


class GpuMemory(msgspec.Struct, frozen=True):
    """A worker's use of GPU memory, bytes; 0: not known."""

    kept: float = 0.0
    """kept between its turns"""
    peak: float = 0.0
    """taken at most while it computes"""
    whole: float = 0.0
    """all memory of the GPU"""


class Grant(msgspec.Struct, frozen=True):
    """The turn of a placement, for the tasks of one of its rounds."""

    placement_id: PlacementId
    round: int


class _Resident(msgspec.Struct):
    turns: int
    place: int
    due: int
    """when its next turn is due, ticks"""
    wants: int | None = None
    """the round for which it wants the turn; None: it is not ready"""
    passed: bool = True
    """it was not ready in its turn, and has not been ready since, so the GPU does not wait for it"""
    hurries: bool = False
    """it was ordered to stop, so it gets the next turn that it asks for"""
    memory: GpuMemory = GpuMemory()
    leaves: bool = False
    """it is being ended, because its memory does not fit beside that of the others"""


class TurnOrder:
    """Whose turn it is among the workers that share a GPU; at most one has the turn (`holder`)."""

    def __init__(self) -> None:
        self.holder: Grant | None = None
        self._residents: dict[PlacementId, _Resident] = {}
        self._waits_since: float | None = None
        self._unconfirmed: set[PlacementId] = set()
        """workers of an earlier life that have not connected yet"""
        self._loaded: list[PlacementId] = []
        """workers whose memory use is known, in the order in which they were first ready"""

    def __contains__(self, placement_id: PlacementId) -> bool:
        return placement_id in self._residents

    def join(self, placement_id: PlacementId, turns: int, place: int, *, unconfirmed: bool = False) -> None:
        """Add a worker.

        `unconfirmed`: it is of an earlier life and may have the turn, so it must connect first.
        """
        self._residents[placement_id] = _Resident(turns, place, self._from_now(turns))
        if unconfirmed:
            self._unconfirmed.add(placement_id)

    def reschedule(self, placement_id: PlacementId, turns: int, place: int) -> None:
        """Change a worker's turns and place in the cycle, from its next turn on."""
        if resident := self._residents.get(placement_id):
            resident.turns, resident.place = turns, place
            resident.due = max(_first(turns, resident.due), self._from_now(turns))
            self._waits_since = None

    def leave(self, placement_id: PlacementId) -> None:
        """A worker has gone from the GPU."""
        self._residents.pop(placement_id, None)
        self._unconfirmed.discard(placement_id)
        self._loaded = [one for one in self._loaded if one != placement_id]
        if self.holder is not None and self.holder.placement_id == placement_id:
            self.holder = None
        self._waits_since = None

    def confirm(self, placement_id: PlacementId, *, holds: int | None) -> None:
        """A worker has connected, and says whether it holds the turn.

        That counts, since earlier messages may be lost.
        """
        self._unconfirmed.discard(placement_id)
        resident = self._residents[placement_id]
        resident.wants = None
        if holds is not None and self.holder is None:
            self.holder = Grant(placement_id, holds)
        elif holds is None and self.holder is not None and self.holder.placement_id == placement_id:
            self.holder = None

    def request(
        self, placement_id: PlacementId, number: int, memory: GpuMemory, due: int = 0
    ) -> dict[PlacementId, str]:
        """A worker is ready for round `number`; `due`: as its gang has agreed, 0 if it has not.

        Returns the workers to end for want of GPU memory, with the reason. A job's peak is known only once it
        has computed, so the sum is checked each time. Workers that came last are ended first, and none gets a
        turn until they are gone.
        """
        resident = self._residents[placement_id]
        if resident.leaves:
            return {}
        known = self._from_now(resident.turns) if resident.passed else 0
        resident.due = max(resident.due, min(due, DUE_MAX), known)
        resident.memory, resident.wants, resident.passed = memory, number, False
        if placement_id not in self._loaded:
            self._loaded.append(placement_id)
        out = {}
        while misfit := self._misfit(memory.whole):
            newest = self._loaded.pop()
            out[newest] = misfit
            self._residents[newest].leaves, self._residents[newest].wants = True, None
        return out

    def give_back(self, placement_id: PlacementId, number: int) -> bool:
        """Take the turn back from its holder; false: this worker did not have it."""
        had = self.holder == Grant(placement_id, number)
        if had:
            self.holder = None
        return had

    def hurry(self, placement_id: PlacementId) -> None:
        if resident := self._residents.get(placement_id):
            resident.hurries = True

    def grant(self, now: float) -> Grant | None:
        """Give the turn to a worker; None: another worker has it, or none is ready."""
        if (
            self.holder is not None
            or self._unconfirmed
            or any(one.leaves for one in self._residents.values())
        ):
            return None
        found = self._hurried() or self._first_due(now)
        if found is None:
            return None
        resident = self._residents[found]
        assert resident.wants is not None
        self.holder = Grant(found, resident.wants)
        resident.wants, self._waits_since = None, None
        resident.due += max(CYCLE // max(resident.turns, 1), 1)
        return self.holder

    def due(self, placement_id: PlacementId) -> int:
        """When the worker's next turn is due, ticks, as far as this GPU knows."""
        return self._residents[placement_id].due

    def wakeup(self) -> float | None:
        """The time at which the GPU stops waiting for the worker whose turn it is.

        None: it waits for none.
        """
        return None if self._waits_since is None else self._waits_since + PATIENCE_S

    def _hurried(self) -> PlacementId | None:
        ready = (key for key, one in self._residents.items() if one.hurries and one.wants is not None)
        return next(ready, None)

    def _first_due(self, now: float) -> PlacementId | None:
        for _, _, placement_id in sorted((one.due, one.place, key) for key, one in self._scheduled()):
            resident = self._residents[placement_id]
            if resident.wants is not None:
                return placement_id
            if not resident.passed:
                if self._waits_since is None:
                    self._waits_since = now
                if now < self._waits_since + PATIENCE_S:
                    return None
                resident.passed, self._waits_since = True, None
        return None

    def _from_now(self, turns: int) -> int:
        """When the first turn is due of a worker that has `turns` in each cycle from the present one on."""
        return _first(turns, min((one.due for _, one in self._scheduled() if not one.passed), default=0))

    def _scheduled(self) -> list[tuple[PlacementId, _Resident]]:
        return [(key, one) for key, one in self._residents.items() if one.turns]

    def _misfit(self, whole: float) -> str:
        """Why the workers do not fit into GPU memory: all keep theirs, and one computes; empty: they fit."""
        memories = [self._residents[one].memory for one in self._loaded]
        if len(memories) < 2:  # noqa: PLR2004 - turns do not matter to a single worker
            return ""
        kept = sum(one.kept for one in memories)
        computes = max(max(one.peak - one.kept, 0.0) for one in memories)
        if not whole or kept + computes <= whole:
            return ""
        return (
            f"{len(memories)} jobs that take turns keep {kept / GIGABYTE:.1f} GB on a GPU, and one that "
            f"computes takes {computes / GIGABYTE:.1f} GB more, of {whole / GIGABYTE:.1f} GB"
        )


def _first(turns: int, now: int) -> int:
    """When the first of `turns` is due in the cycle of the time `now`, ticks."""
    return now - now % CYCLE + CYCLE // max(2 * turns, 1)
