"""The ranks of one placement on one node, as a state machine. Pure: events in, effects out.

A rank that ends badly ends the gang: the other ranks would hang, so they get a moment for their last messages
and are killed. A rank that ends well does not end the gang: others may still be writing. A command that is no
Python script sends no message: it counts as up before it starts, and starts when the gang has formed.
"""

from enum import StrEnum

from schemas.events import StartOrdered
from services.agent.process.gang import messages
from services.agent.process.gang.effects import (
    Actions,
    Kill,
    PrintLine,
    SendLastReport,
    SendLine,
    SendReport,
    SetTimer,
    Spawn,
    Terminate,
    Timer,
)
from services.agent.process.gang.stretches import Stretches
from services.agent.process.gang.verdicts import ProcessEnd, RankRecord, WorkerRecord, verdict
from services.agent.process.launch import tasks_of
from services.agent.tasks import Failed, Saved, Started
from shared.domain import gangs

LOOK_S, LOOKS = 0.5, 5
"""how often ranks look whether they shall stop, and how many looks they get at least"""
LAST_WORDS_S = 2.0
"""what the others get once a rank has ended badly"""
SAVE_MAX_S = 600.0
"""of what the last checkpoint took, by its rank's word: a job whose saves take longer asks for its grace"""
LEAVING_S = 10.0
"""what ranks get to end once all have said their last messages"""
NO_COPY = "its script does not call attach of hopjob: it cannot train a share of its job as a copy"
NO_TASKS = (
    "its script does not take its batches from attach of hopjob: "
    "it cannot have a GPU compute several batches of an update"
)
NOT_MEASURED = "its command is no Python script, whose iterations could be measured"


class GangState(StrEnum):
    STARTING = "starting"
    UP = "up"
    """waits for the ranks of other nodes, or measures"""
    TRAINING = "training"
    STOPPING = "stopping"
    ENDING = "ending"
    """a rank has ended badly"""
    GONE = "gone"


G = GangState
ALIVE = frozenset({G.STARTING, G.UP, G.TRAINING})

MOVES: dict[GangState, frozenset[GangState]] = {
    G.UP: frozenset({G.STARTING}),
    G.TRAINING: frozenset({G.STARTING, G.UP}),
    G.STOPPING: ALIVE,
    G.ENDING: ALIVE | {G.STOPPING},
    G.GONE: ALIVE | {G.STOPPING, G.ENDING},
}
"""state → those it is reached from; where an agent takes a gang over, it may have to train before it says
that it is up"""


class Gang:
    """`speaks`: its command is a Python script.

    `host`: of this node, for the others; `port`: where rank 0 of a command is met that is no script.
    """

    def __init__(
        self, order: StartOrdered, *, speaks: bool, host: str, port: int | None, observe_every_s: float
    ) -> None:
        self.state = G.STARTING
        self.meeting = ""
        self.past = WorkerRecord(order)
        self.ranks = {rank: RankRecord(rank, port=port) for rank in ranks_on(order)}
        self._order = order
        self._speaks = speaks
        self._spawned = False
        self._host = host
        self._stretches = Stretches(order, observe_every_s)

    def begin(self) -> Actions:
        """Begin, unless it was ordered to stop before."""
        if self.state is not G.STARTING:
            return []
        if self._speaks:
            return self._spawn("")
        if wanting := self._wanting():
            return self._gone(SendLastReport(Failed(self._order.placement_id, wanting, lasting=True)))
        if self._order.profile_iterations:
            return self._gone(SendLastReport(Failed(self._order.placement_id, NOT_MEASURED, lasting=True)))
        return self._all_up()

    def taken_over(self) -> Actions:
        """Instead of `begin`, by an agent that found its ranks."""
        self._spawned = True
        return [] if self._speaks else self._all_up()

    def train(self, meeting: str) -> Actions:
        """A second time changes nothing."""
        if not self._move(G.TRAINING):
            return []
        self.meeting = meeting
        if self._speaks:
            return [SendLine(messages.go(meeting))]
        return [] if self._spawned else self._spawn(meeting)

    def stop(self) -> Actions:
        if not self._move(G.STOPPING):
            return []
        self.past.stopping = True
        if not self._spawned:
            return self._over()
        return [SendLine(messages.stop()), Terminate(), SetTimer(Timer.GRACE, self.grace_s)]

    @property
    def grace_s(self) -> float:
        """Seconds from the order to stop to the kill."""
        return max(self._order.spec.grace_s, LOOKS * LOOK_S + 2 * min(self.past.save_s, SAVE_MAX_S))

    def _spawn(self, meeting: str) -> Actions:
        self._spawned = True
        return [Spawn(meeting)]

    def rang(self, due: Timer) -> Actions:
        """A timer rang; nothing happens once the gang has gone."""
        if due is Timer.GRACE and self.state is not G.STOPPING:
            return []
        self.past.killed = True
        return [Kill()]

    # ---- what ranks say

    def heard(self, number: int, message: messages.RankMessage) -> Actions:
        rank, actions = self.ranks[number], Actions()
        match message:
            case messages.Hello():
                rank.attached = message.attached
                actions = self._said_before(number)
            case messages.Up():
                actions = self._up(rank, message)
            case messages.ProfiledMessage():
                self.past.times = message
            case messages.ObservedMessage():
                actions = self._ran(message)
            case messages.SavedMessage():
                actions = self._saved(message)
            case messages.DamagedMessage(file, reason):
                text = f"checkpoint {file} cannot be read, an older one is taken: {reason}"
                actions = [PrintLine(number, text)]
            case messages.UnsavedMessage(reason):
                text = f"no checkpoint could be written, training goes on: {reason}"
                actions = [PrintLine(number, text)]
            case messages.ReadyMessage() | messages.DoneMessage():
                pass  # what executors hear
            case _:
                actions = self._last_message(rank, message)
        return actions

    def hangs(self, number: int, reason: str) -> Actions:
        """End a gang of which a rank hangs: no fault of the job's."""
        rank = self.ranks[number]
        return [] if rank.end or rank.message else self._last_message(rank, messages.EndedMessage(reason))

    def _said_before(self, number: int) -> Actions:
        """Repeat the messages to a rank that connected later; hearing one twice is harmless."""
        if self.state is G.TRAINING:
            return [SendLine(messages.go(self.meeting), number)]
        return [SendLine(messages.stop(), number)] if self.state is G.STOPPING else []

    def _up(self, rank: RankRecord, message: messages.Up) -> Actions:
        rank.up, rank.port, rank.attached = True, message.port, rank.attached or message.elastic
        if not rank.attached and (wanting := self._wanting()):
            return self._last_message(rank, messages.FailedMessage(reason=wanting))
        if self.past.kept is None:
            self.past.kept = message.samples
        return self._all_up() if all(one.up for one in self.ranks.values()) else []

    def _wanting(self) -> str:
        """What the order needs that only a script with `attach` can do; empty if nothing."""
        if self._order.until is not None:
            return NO_COPY
        several = tasks_of(self._order) or gangs.in_rota(self._order.gang)
        return NO_TASKS if several else ""

    def _ran(self, message: messages.ObservedMessage) -> Actions:
        self.past.samples = message.samples
        observed = self._stretches.ran(message)
        return [SendReport(observed)] if observed else []

    def _saved(self, message: messages.SavedMessage) -> Actions:
        self.past.kept, self.past.save_s = message.samples, message.seconds
        return (
            [SendReport(Saved(self._order.placement_id, message.samples))]
            if message.why == "interval"
            else []
        )

    def _all_up(self) -> Actions:
        self._move(G.UP)
        port = self.ranks[0].port if 0 in self.ranks else None
        meeting = f"{self._host}:{port}" if port and self._order.gang.gpus > 1 else ""
        restored = None if self._order.profile_iterations else self.past.kept
        return [SendReport(Started(self._order.placement_id, meeting, restored))]

    def _last_message(self, rank: RankRecord, message: messages.LastMessage) -> Actions:
        rank.message = message
        if not rank.ended_well:
            self.past.faults.append(rank)
            return self._ending()
        if all(one.message or one.end for one in self.ranks.values()):
            return [SetTimer(Timer.LEAVING, LEAVING_S)]
        return []

    # ---- how ranks end

    def ended(self, number: int, end: ProcessEnd) -> Actions:
        rank = self.ranks[number]
        rank.end = end
        well = self._well(rank)
        if not (well or self.past.killed or rank in self.past.faults):
            self.past.faults.append(rank)
        if all(one.end for one in self.ranks.values()):
            return self._over()
        return [] if well or self.state is G.STOPPING else self._ending()

    def _well(self, rank: RankRecord) -> bool:
        if self._order.profile_iterations:
            return self.past.stopping or self.past.times is not None
        return rank.ended_well

    def _ending(self) -> Actions:
        return [SetTimer(Timer.LAST_WORDS, LAST_WORDS_S)] if self._move(G.ENDING) else []

    def _over(self) -> Actions:
        rest = self._stretches.rest()
        report = verdict(self.past, list(self.ranks.values()))
        return self._gone(*([SendReport(rest)] if rest else []), SendLastReport(report))

    def _gone(self, *actions: SendReport | SendLastReport) -> Actions:
        self._move(G.GONE)
        return list(actions)

    def _move(self, state: GangState) -> bool:
        if self.state not in MOVES[state]:
            return False
        self.state = state
        return True


def ranks_on(order: StartOrdered) -> range:
    """The number of ranks on the node that the order is addressed to."""
    first = sum(one.gpus for one in order.gang.members if one.node < order.node_id)
    return range(first, first + order.gang.on(order.node_id))
