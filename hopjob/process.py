"""What a rank's process is to its agent: one object, made by `python -m hopjob`, else by the script."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from types import FrameType

from hopjob.agent import order as orders
from hopjob.agent.connection import Connection
from hopjob.agent.ending import FAILED, LOST, Ending
from hopjob.agent.rendezvous import Rendezvous
from hopjob.measure.profile import Profile
from hopjob.measure.rigid import Rigid
from hopjob.state import rng
from hopjob.state.checkpoints import Folder, samples_of
from hopjob.state.samples import Progress


class Process:
    def __init__(self, order: orders.Order, *, attached: bool, launched: bool) -> None:
        """`launched`: `python -m hopjob` runs the script, and reports its end."""
        self.order, self.attached, self.launched = order, attached, launched
        self.progress: Progress | None = None
        self.training_over = False
        self.profile: Profile | None = None
        self.rigid: Rigid | None = None
        writer = order.node if order.copy else ""
        self.folder = Folder(order.checkpoints, order.placement, writer=writer) if order.checkpoints else None
        self.connection = Connection(order.socket, self._hello, orphan_s=order.orphan_s)
        # Ranks of a command that is no Python script, such as a shell line with one, know where to meet.
        named = order.socket and not launched
        port = int(os.environ.get("MASTER_PORT") or 0) if named else 0
        self.rendezvous = Rendezvous(order, self.connection, port=port)
        self.ending = Ending(self.connection, order.last, ranks=order.ranks)
        self.ending.samples = self._saved_samples()
        self.connection.open()
        if order.managed or launched:
            self.ending.watch_exceptions()
        if order.profile is not None:
            self.profile = Profile(order.profile, self.connection, self.ending)
            self.profile.begin()

    @property
    def samples(self) -> float:
        """Samples of the job that are done, as far as this process knows."""
        if self.progress is not None:
            return float(self.progress.trained)
        return self.rigid.samples if self.rigid is not None and not self.attached else self.ending.samples

    def attach(self) -> None:
        """Mark the script as elastic: when asked to stop, also by SIGTERM, it saves a checkpoint first."""
        if self.progress is not None:
            raise RuntimeError("hopjob.attach: a process trains one model")
        self.attached = True
        if self.profile is not None:
            self.profile.attached()
        self.stop_on_signal()
        if self.order.managed and not self.launched:
            atexit.register(self._ended_by_itself)

    def stop_on_signal(self) -> None:
        """Take SIGTERM for an order to stop; while there is nothing to save, end at once."""
        if self.order.managed and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._signalled)
            os.register_at_fork(after_in_child=_default_signal)

    def seed(self, seed: int) -> int:
        """The seed of this process's random draws."""
        order = self.order
        return rng.of_copy(seed, order.placement, order.node) if order.copy else seed

    def announce(self, progress: Progress) -> None:
        """Report that this rank is up, and wait until all are. Ends the process if it is to stop instead.

        The training loop measures itself from now on.
        """
        if self.connection.stop_asked is not None:
            self.ending.stopped()
        if self.rigid is not None:
            self.rigid.end()
            self.rigid = None
        self.meet(float(progress.trained), elastic=True)
        self.progress = progress

    def meet(self, samples: float, *, elastic: bool, joins: bool = True) -> None:
        self.ending.samples = samples
        if not self.rendezvous.wait_until_all_up(samples, elastic=elastic, joins=joins):
            self.ending.stopped()

    def begin_watched(self) -> None:
        """Wait until all ranks are up, then watch the script, which does not seem to call `attach`.

        A module that it imports may call it all the same: see `announce`.
        """
        self.meet(self.ending.samples, elastic=self.attached)
        if self.order.socket and self.profile is None:
            self.rigid = Rigid(self.order, self.connection, self.rendezvous, lambda: self.samples)
            self.rigid.watch()

    def script_ended(self, code: int) -> None:
        """Let the script end as Python would, report its end with this exit code, and exit.

        A process that the script has forked and that comes to the script's end reports nothing.
        """
        self.ending.end_script()
        if code or not self.ending.is_own:
            self.ending.exit(code)
        if self.profile is not None:
            self.profile.script_ended()
        if not self.attached and self.connection.stop_asked is not None:  # it may have saved, and then obeyed
            self.ending.report_and_exit("stopped", {"samples": None})
        if self.progress is None and self.order.needs_attach:
            self.ending.report_and_exit("failed", {"reason": orders.WITHOUT_ATTACH}, FAILED)
        if self.progress is None and self.attached:  # it has not called `attach`: what never began cannot end
            self.meet(self.ending.samples, elastic=True, joins=False)
        goal = self.order.goal
        if self.progress is not None and goal is not None and self._is_early(goal):
            self._ended_early(self.samples, goal)
        self.ending.report_and_exit("completed", {"samples": self.samples})

    def _is_early(self, goal: float) -> bool:
        """Whether the script left its training loop; a trainer's may end by the trainer's own settings."""
        return not self.training_over or (self.samples < goal and not self.order.copy)

    def _ended_early(self, samples: float, goal: float) -> None:
        """Say what a script that leaves its training loop may not know; it is stopped if it was to stop."""
        stopped = self.connection.stop_asked is not None
        if self.order.rank == 0:
            sys.stderr.write(
                f"hopjob: the script ended by itself after {samples:.0f} of {goal:.0f} samples; "
                f"no checkpoint holds those after {self.ending.samples:.0f}"
                f"{'' if stopped else ', and its job counts as complete'}\n"
            )
        if stopped:
            self.ending.stopped()

    def _ended_by_itself(self) -> None:
        """Report completion if training is over, as a script exits that `python -m hopjob` did not run."""
        if self.training_over and self.ending.is_own:
            self.ending.report("completed", {"samples": self.samples})

    def _saved_samples(self) -> float:
        if self.folder is None or self.order.profile is not None:
            return 0.0
        try:
            names = self.folder.names()
        except OSError as error:
            if not self.attached:  # the files in the folder are the script's own
                return 0.0
            self.ending.report_and_exit(
                "lost", {"reason": f"the checkpoints cannot be read: {type(error).__name__}: {error}"}, LOST
            )
        return float(samples_of(names[0])) if names else 0.0

    def _hello(self) -> dict[str, object]:
        order = self.order
        about = {"placement": order.placement, "rank": order.rank, "pid": os.getpid()}
        return {**about, "attached": self.attached, "samples": self.samples}

    def _signalled(self, _number: int, _frame: FrameType | None) -> None:
        self.connection.ask_to_stop()
        if self.progress is None:
            self.ending.stopped()


_this: list[Process] = []


def this_process(*, attached: bool, launched: bool = False) -> Process:
    if not _this:
        _this.append(Process(orders.read(), attached=attached, launched=launched))
    return _this[0]


def _default_signal() -> None:
    """Called in a fork, such as a loader's worker: restore the signal's default."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
