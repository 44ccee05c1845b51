"""The executor of one GPU: gives the turn to one worker at a time, and logs to which.

Its log has a line for each turn that is granted, returned or lost, in the order in which it was; `began`:
what follows is of a new life of the agent's, which may find a worker that has its turn. A worker that keeps
its turn for too long loses it: it is ended, and once it is gone the next one has its turn.
"""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import msgspec

from schemas.ids import PlacementId
from services.agent.process.gang import messages
from services.agent.process.turns.order import GpuMemory, Grant, TurnOrder

NOBODY = Grant(PlacementId(""), 0)
LOG_MAX_BYTES = 4_000_000
"""a log that has become longer is set aside, in place of the one before it"""


class Participant(msgspec.Struct, frozen=True):
    """A worker's rank on the GPU. `tell`: what it hears. `end`: it has to go, with the reason."""

    placement_id: PlacementId
    tell: Callable[[bytes], None]
    end: Callable[[str], None]


class Executor:
    """`limit_s`: how long a worker may keep its turn."""

    def __init__(self, log: Path, *, limit_s: float) -> None:
        self._log, self._limit_s = log, limit_s
        self._order = TurnOrder()
        self._participants: dict[PlacementId, Participant] = {}
        self._alarms: dict[str, asyncio.TimerHandle] = {}
        self._write("began", NOBODY)

    def joins(self, participant: Participant, turns: int, place: int, *, unheard: bool = False) -> None:
        self._participants[participant.placement_id] = participant
        self._order.joins(participant.placement_id, turns, place, unheard=unheard)
        if unheard:
            late = f"did not say within {self._limit_s:g} s whether it has its turn"
            self._ring(participant.placement_id, self._limit_s, lambda: participant.end(late))

    def changes(self, placement_id: PlacementId, turns: int, place: int) -> None:
        self._order.changes(placement_id, turns, place)
        self._go_on()

    def leaves(self, placement_id: PlacementId) -> None:
        """A worker's process has ended."""
        if self._participants.pop(placement_id, None) is None:
            return
        self._silence(placement_id)
        holder = self._order.holder
        self._order.leaves(placement_id)
        if holder is not None and self._order.holder is None:
            self._write("ended", holder)
        self._go_on()

    def hurries(self, placement_id: PlacementId) -> None:
        self._order.hurries(placement_id)
        self._go_on()

    def heard(
        self,
        placement_id: PlacementId,
        message: messages.Hello | messages.ReadyMessage | messages.DoneMessage,
    ) -> None:
        """A message of a rank; ignored if the rank has left."""
        if placement_id not in self._order:
            return
        match message:
            case messages.Hello():
                self._spoke(placement_id, message)
            case messages.ReadyMessage():
                memory = GpuMemory(message.kept, message.peak, message.whole)
                for newest, misfit in self._order.wants(placement_id, message.round, memory).items():
                    self._participants[newest].end(misfit)
            case messages.DoneMessage():
                if self._order.returns(placement_id, message.round):
                    self._silence(placement_id)
                    self._write("returned", Grant(placement_id, message.round))
        self._go_on()

    def _spoke(self, placement_id: PlacementId, hello: messages.Hello) -> None:
        before = self._order.holder
        self._order.speaks(placement_id, holds=hello.holds)
        self._silence(placement_id)
        holder = self._order.holder
        if holder is not None and holder.placement_id == placement_id:
            if before is None:
                self._write("found", holder)
            self._watch(holder)
        elif before is not None and holder is None:
            self._write("returned", before)

    def _go_on(self) -> None:
        loop = asyncio.get_running_loop()
        if grant := self._order.grant(loop.time()):
            self._write("granted", grant)
            self._participants[grant.placement_id].tell(messages.turn(grant.round))
            self._watch(grant)
        wakeup = self._order.wakeup()
        self._silence("")
        if wakeup is not None:
            self._ring("", max(wakeup - loop.time(), 0.0), self._go_on)

    def _watch(self, grant: Grant) -> None:
        self._ring(grant.placement_id, self._limit_s, lambda: self._lose(grant))

    def _lose(self, grant: Grant) -> None:
        """End a worker that keeps its turn too long; it has the turn until it is gone."""
        if self._order.holder == grant:
            self._write("lost", grant)
            self._participants[grant.placement_id].end(f"kept its turn for more than {self._limit_s:g} s")

    def _ring(self, name: str, after_s: float, call: Callable[[], None]) -> None:
        self._silence(name)
        self._alarms[name] = asyncio.get_running_loop().call_later(after_s, call)

    def _silence(self, name: str) -> None:
        if alarm := self._alarms.pop(name, None):
            alarm.cancel()

    def _write(self, what: str, grant: Grant) -> None:
        """Write a line to the log; turns go on if the disk is full."""
        line = {
            "at": asyncio.get_running_loop().time(),
            "what": what,
            "placement": grant.placement_id,
            "round": grant.round,
        }
        try:
            self._log.parent.mkdir(exist_ok=True)
            if self._log.exists() and self._log.stat().st_size > LOG_MAX_BYTES:
                self._log.replace(self._log.with_suffix(".before"))
            with self._log.open("a", encoding="utf-8") as log:
                log.write(json.dumps(line) + "\n")
        except OSError:
            pass
