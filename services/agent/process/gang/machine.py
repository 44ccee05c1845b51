"""The ranks of one placement on one node, as a state machine. Pure: events in, effects out.

When a rank fails or is killed, the other ranks would wait for it for ever. So they get a moment for their
last messages and are killed. When a rank ends normally, nothing happens: others may still be writing. A
command that is no Python script sends no messages, so it counts as up before it is started, and is started
once the gang has formed.
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

STOP_CHECK_S, STOP_CHECKS = 0.5, 5
"""interval at which ranks check whether to stop, and how many checks their grace must leave time for"""
LAST_WORDS_S = 2.0
"""seconds for the other ranks' last messages, once a rank has ended badly"""
SAVE_MAX_S = 600.0
"""the most of the last save's duration, which a rank reports, that counts for the grace; a job whose saves
take longer must ask for a longer grace in its file"""
LEAVING_S = 10.0
"""seconds for processes to exit, once all ranks have sent their last messages"""
NO_COPY = "its script does not call attach of hopjob: it cannot train a share of its job as a copy"
NO_TASKS = (
    "its script does not take its batches from attach of hopjob: "
    "it cannot have a GPU compute several batches of an update"
)
NOT_MEASURED = "its command is no Python script, whose iterations could be measured"


class GangState(StrEnum):
    STARTING = "starting"
    UP = "up"
    """its ranks are up; it waits for the ranks of other nodes, or measures"""
    TRAINING = "training"
    STOPPING = "stopping"
    ENDING = "ending"
    """a rank has ended badly, and the others are about to be killed"""
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
"""state → the states that may precede it; a gang that was taken over may be ordered to train before it is
up"""


class Gang:
    """`has_plugin`: its command is a Python script, which runs under the plug-in and sends messages.

    `host`: address of this node for the other ranks. `port`: that of rank 0, for a command that reports none.
    """

    def __init__(
        self, order: StartOrdered, *, has_plugin: bool, host: str, port: int | None, observe_every_s: float
    ) -> None:
        self.state = G.STARTING
        self.meeting = ""
        self.record = WorkerRecord(order)
        self.ranks = {rank: RankRecord(rank, port=port) for rank in ranks_on(order)}
        self._order = order
        self._has_plugin = has_plugin
        self._spawned = False
        self._host = host
        self._stretches = Stretches(order, observe_every_s)

    def begin(self) -> Actions:
        """Start its ranks, or count as up, or fail if its command cannot do what is ordered.

        It does nothing if the gang was ordered to stop before.
        """
        if self.state is not G.STARTING:
            return []
        if self._has_plugin:
            return self._spawn("")
        if missing := self._missing():
            return self._end_with(SendLastReport(Failed(self._order.placement_id, missing, lasting=True)))
        if self._order.profile_iterations:
            return self._end_with(
                SendLastReport(Failed(self._order.placement_id, NOT_MEASURED, lasting=True))
            )
        return self._all_up()

    def taken_over(self) -> Actions:
        """Called instead of `begin` if the ranks of an earlier life were found."""
        self._spawned = True
        return [] if self._has_plugin else self._all_up()

    def train(self, meeting: str) -> Actions:
        """Have the ranks train; a second call changes nothing."""
        if not self._move(G.TRAINING):
            return []
        self.meeting = meeting
        if self._has_plugin:
            return [SendLine(messages.go(meeting))]
        return [] if self._spawned else self._spawn(meeting)

    def stop(self) -> Actions:
        if not self._move(G.STOPPING):
            return []
        self.record.stopping = True
        if not self._spawned:
            return self._finish()
        return [SendLine(messages.stop()), Terminate(), SetTimer(Timer.GRACE, self.grace_s)]

    @property
    def grace_s(self) -> float:
        """Seconds from the order to stop to the kill."""
        return max(
            self._order.spec.grace_s, STOP_CHECKS * STOP_CHECK_S + 2 * min(self.record.save_s, SAVE_MAX_S)
        )

    def _spawn(self, meeting: str) -> Actions:
        self._spawned = True
        return [Spawn(meeting)]

    def timer_fired(self, due: Timer) -> Actions:
        """Kill the worker, unless the timer no longer applies."""
        if due is Timer.GRACE and self.state is not G.STOPPING:
            return []
        self.record.killed = True
        return [Kill()]

    # ---- messages of ranks

    def heard(self, number: int, message: messages.RankMessage) -> Actions:
        rank, actions = self.ranks[number], Actions()
        match message:
            case messages.CompletedMessage() if self._may_have_stopped(rank, message):
                actions = self._last_message(rank, messages.StoppedMessage())
            case messages.Hello():
                rank.attached = message.attached
                actions = self._repeated(number)
            case messages.Up():
                actions = self._up(rank, message)
            case messages.ProfiledMessage():
                self.record.times = message
            case messages.ObservedMessage():
                actions = self._observed(message)
            case messages.SavedMessage():
                actions = self._saved(message)
            case messages.DamagedMessage(file, reason):
                text = f"checkpoint {file} cannot be read, an older one is taken: {reason}"
                actions = [PrintLine(number, text)]
            case messages.UnsavedMessage(reason):
                text = f"no checkpoint could be written, training goes on: {reason}"
                actions = [PrintLine(number, text)]
            case messages.ReadyMessage() | messages.DoneMessage():
                pass  # the executor of the rank's GPU takes these
            case _:
                actions = self._last_message(rank, message)
        return actions

    def end_hung(self, number: int, reason: str) -> Actions:
        """End the gang because a rank hangs (it keeps its turn); that is no fault of the job."""
        rank = self.ranks[number]
        return [] if rank.end or rank.message else self._last_message(rank, messages.EndedMessage(reason))

    def _repeated(self, number: int) -> Actions:
        """The latest order, for a rank that connected after it was sent; to get it twice is harmless."""
        if self.state is G.TRAINING:
            return [SendLine(messages.go(self.meeting), number)]
        return [SendLine(messages.stop(), number)] if self.state is G.STOPPING else []

    def _up(self, rank: RankRecord, message: messages.Up) -> Actions:
        """A rank is up. One whose script calls `attach` unexpectedly says so again, with what it restored."""
        again, rank.up = rank.up, True
        rank.port, rank.attached = message.port, rank.attached or message.elastic
        if again or self.record.samples_saved is None:
            self.record.samples_saved = message.samples
        return self._all_up() if all(one.up for one in self.ranks.values()) else []

    def _missing(self) -> str:
        """What the order needs and only a script with `attach` can do; empty: nothing.

        It is asked of commands alone. The plug-in sees whether its script calls `attach`, as it trains.
        """
        if self._order.until is not None:
            return NO_COPY
        several = tasks_of(self._order) or gangs.in_rota(self._order.gang)
        return NO_TASKS if several else ""

    def _observed(self, message: messages.ObservedMessage) -> Actions:
        self.record.samples = message.samples
        observed = self._stretches.add(message)
        return [SendReport(observed)] if observed else []

    def _saved(self, message: messages.SavedMessage) -> Actions:
        self.record.samples_saved, self.record.save_s = message.samples, message.seconds
        return (
            [SendReport(Saved(self._order.placement_id, message.samples))]
            if message.why == "interval"
            else []
        )

    def _all_up(self) -> Actions:
        self._move(G.UP)
        port = self.ranks[0].port if 0 in self.ranks else None
        meeting = f"{self._host}:{port}" if port and self._order.gang.gpus > 1 else ""
        restored = None if self._order.profile_iterations else self.record.samples_saved
        return [SendReport(Started(self._order.placement_id, meeting, restored))]

    def _may_have_stopped(self, rank: RankRecord, message: messages.CompletedMessage) -> bool:
        """Whether a script that ends well may have stopped as ordered, on a signal that it handles itself.

        That is one without `attach`, or one that has not done all samples. One that said that it is complete
        before the order is complete; its file says so once more.
        """
        said_before = isinstance(rank.message, messages.CompletedMessage)
        whole = self._order.spec.samples if self._order.until is None else self._order.until
        undone = message.samples is not None and message.samples < whole
        return self.record.stopping and (undone or not rank.attached) and not said_before

    def _last_message(self, rank: RankRecord, message: messages.LastMessage) -> Actions:
        rank.message = message
        if not rank.ended_well:
            self.record.faults.append(rank)
            return self._ending()
        if all(one.message or one.end for one in self.ranks.values()):
            return [SetTimer(Timer.LEAVING, LEAVING_S)]
        return []

    # ---- ends of ranks

    def ended(self, number: int, end: ProcessEnd) -> Actions:
        rank = self.ranks[number]
        rank.end = end
        well = self._well(rank)
        if not (well or self.record.killed or rank in self.record.faults):
            self.record.faults.append(rank)
        if all(one.end for one in self.ranks.values()):
            return self._finish()
        return [] if well or self.state is G.STOPPING else self._ending()

    def _well(self, rank: RankRecord) -> bool:
        if self._order.profile_iterations:
            return self.record.stopping or self.record.times is not None
        return rank.ended_well

    def _ending(self) -> Actions:
        return [SetTimer(Timer.LAST_WORDS, LAST_WORDS_S)] if self._move(G.ENDING) else []

    def _finish(self) -> Actions:
        rest = self._stretches.rest()
        report = verdict(self.record, list(self.ranks.values()))
        return self._end_with(*([SendReport(rest)] if rest else []), SendLastReport(report))

    def _end_with(self, *actions: SendReport | SendLastReport) -> Actions:
        self._move(G.GONE)
        return list(actions)

    def _move(self, state: GangState) -> bool:
        if self.state not in MOVES[state]:
            return False
        self.state = state
        return True


def ranks_on(order: StartOrdered) -> range:
    """The ranks, by their numbers in the gang, on the node that the order is addressed to."""
    first = sum(one.gpus for one in order.gang.members if one.node < order.node_id)
    return range(first, first + order.gang.on(order.node_id))
