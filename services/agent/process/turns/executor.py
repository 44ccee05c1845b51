"""The executor of one GPU: gives the turn to one worker at a time, and logs each change.

Its log has a line for each turn that was granted, returned or lost, in order. A line `began` says that a new
life of the agent starts there; that life may find a worker that has the turn already (`found`). A worker that
keeps its turn for too long is ended, and once it is gone the next one gets the turn.
"""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import msgspec

from schemas.ids import PlacementId
from services.agent.process.gang import messages
from services.agent.process.turns.order import GpuMemory, Grant, TurnOrder

NO_TURN = Grant(PlacementId(""), 0)
"""placeholder for the log line `began`, which is about no turn"""
LOG_MAX_BYTES = 4_000_000
"""size above which the log is renamed to `.before`, replacing the last one of that name"""


class Participant(msgspec.Struct, frozen=True):
    """A worker's rank on the GPU.

    `send`: sends it a message. `end`: ends its worker, for the reason given.
    """

    placement_id: PlacementId
    send: Callable[[bytes], None]
    end: Callable[[str], None]


class Executor:
    """`log`: the file that it logs to. `limit_s`: seconds that a worker may keep its turn."""

    def __init__(self, log: Path, *, limit_s: float) -> None:
        self._log, self._limit_s = log, limit_s
        self._order = TurnOrder()
        self._participants: dict[PlacementId, Participant] = {}
        self._alarms: dict[str, asyncio.TimerHandle] = {}
        self._write("began", NO_TURN)

    def join(self, participant: Participant, turns: int, place: int, *, unconfirmed: bool = False) -> None:
        self._participants[participant.placement_id] = participant
        self._order.join(participant.placement_id, turns, place, unconfirmed=unconfirmed)
        if unconfirmed:
            late = f"did not say within {self._limit_s:g} s whether it has its turn"
            self._set_alarm(participant.placement_id, self._limit_s, lambda: participant.end(late))

    def reschedule(self, placement_id: PlacementId, turns: int, place: int) -> None:
        self._order.reschedule(placement_id, turns, place)
        self._go_on()

    def leave(self, placement_id: PlacementId) -> None:
        """A worker's process has ended."""
        if self._participants.pop(placement_id, None) is None:
            return
        self._cancel_alarm(placement_id)
        holder = self._order.holder
        self._order.leave(placement_id)
        if holder is not None and self._order.holder is None:
            self._write("ended", holder)
        self._go_on()

    def hurry(self, placement_id: PlacementId) -> None:
        self._order.hurry(placement_id)
        self._go_on()

    def heard(
        self,
        placement_id: PlacementId,
        message: messages.Hello | messages.ReadyMessage | messages.DoneMessage,
    ) -> None:
        """Take a message of a rank; ignored if the worker has left."""
        if placement_id not in self._order:
            return
        match message:
            case messages.Hello():
                self._connected(placement_id, message)
            case messages.ReadyMessage():
                memory = GpuMemory(message.kept, message.peak, message.whole)
                misfits = self._order.request(placement_id, message.round, memory, message.due)
                for newest, misfit in misfits.items():
                    self._participants[newest].end(misfit)
            case messages.DoneMessage():
                if self._order.give_back(placement_id, message.round):
                    self._cancel_alarm(placement_id)
                    self._write("returned", Grant(placement_id, message.round))
        self._go_on()

    def _connected(self, placement_id: PlacementId, hello: messages.Hello) -> None:
        before = self._order.holder
        self._order.confirm(placement_id, holds=hello.holds)
        self._cancel_alarm(placement_id)
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
            next_due = self._order.due(grant.placement_id)
            self._participants[grant.placement_id].send(messages.turn(grant.round, next_due))
            self._watch(grant)
        wakeup = self._order.wakeup()
        self._cancel_alarm("")
        if wakeup is not None:
            self._set_alarm("", max(wakeup - loop.time(), 0.0), self._go_on)

    def _watch(self, grant: Grant) -> None:
        self._set_alarm(grant.placement_id, self._limit_s, lambda: self._end_holder(grant))

    def _end_holder(self, grant: Grant) -> None:
        """End the worker that keeps its turn too long; no other gets the turn until the worker is gone."""
        if self._order.holder == grant:
            self._write("lost", grant)
            self._participants[grant.placement_id].end(f"kept its turn for more than {self._limit_s:g} s")

    def _set_alarm(self, name: str, after_s: float, call: Callable[[], None]) -> None:
        self._cancel_alarm(name)
        self._alarms[name] = asyncio.get_running_loop().call_later(after_s, call)

    def _cancel_alarm(self, name: str) -> None:
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
