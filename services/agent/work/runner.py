"""The interface between an agent and what runs jobs on its node; a runner is a plug-in.

The core gives tasks to it and gets reports from it. A runner starts processes, or emulates them.
"""

from collections.abc import Callable
from typing import Protocol

from schemas.calibration import AllReduceMeeting, AllReduceTimes
from schemas.events import StartOrdered
from schemas.ids import JobId, PlacementId
from schemas.placement import Gang, Mode
from schemas.questions import JoinAllReduce, OpenAllReduce
from schemas.settings import Settings
from services.agent.tasks import Report
from shared.runtime.clock import Clock

Write = Callable[[JobId, int, str], None]
"""takes a line that a process printed: (job, rank of the process in its gang, line)"""


class Runner(Protocol):
    """Runs workers. Every call but `adopt` and `all_reduces` returns at once, and its results are reported.

    An error of a worker is reported, not raised. Every worker that was started gets exactly one `LastReport`,
    after all its other reports. A call for a worker that does not exist changes nothing (its last report is
    on the way), nor does a call that repeats an earlier one.
    """

    modes: frozenset[type[Mode]]
    """the modes of synchronisation that it can run; it gets gangs of no other mode"""
    workloads: tuple[str, ...]
    """what it can train, each as `MODEL on DATASET`; empty: anything"""
    runs_commands: bool
    """whether it starts the commands of jobs; it then gets only jobs that have one"""
    residents_max: int
    """jobs whose processes may be on one GPU, running or standing by between placements; 0: none stands by"""

    async def adopt(self) -> tuple[PlacementId, ...]:
        """Find the workers that an earlier life started, also those that have ended since.

        Called before `run`. `run` reports about them as about its own, beginning with Started if they are up;
        a report that the earlier life made may come again. The core stops those that are no longer wanted.
        """
        ...

    async def run(self, report: Callable[[Report], None], write: Write | None) -> None:
        """Run until cancelled, then end all workers.

        `write`: takes the output of jobs; None: none is kept.
        """
        ...

    def start(self, order: StartOrdered, gpu_indices: tuple[int, ...]) -> None:
        """Start the processes of a worker; with `order.profile_iterations`, measure.

        It waits for processes of other workers that are still ending on these GPUs.
        """
        ...

    def train(self, placement_id: PlacementId, meeting: str) -> None:
        """Have the processes train: every worker of the gang is up.

        `meeting`: `host:port` at which the processes meet, as rank 0 reported it; every node gets this call
        then. Empty: they need not meet, and only the nodes of the gang's leaders, or all nodes of a rota, get
        it.
        """
        ...

    def turn(self, placement_id: PlacementId, gang: Gang) -> None:
        """Change the turns that the placement takes in its rota to those of `gang`."""
        ...

    def stop(self, placement_id: PlacementId) -> None:
        """Have the worker save a checkpoint and end."""
        ...

    async def all_reduces(
        self, question: OpenAllReduce | JoinAllReduce, gpu_indices: tuple[int, ...]
    ) -> AllReduceMeeting | AllReduceTimes:
        """Open all-reduces by naming a place to meet, or join them and take part to the end.

        The first node of the ring times them. `gpu_indices`: GPUs that may be used; the question may want
        fewer. Raises OSError: the all-reduces cannot be timed.
        """
        ...

    def running(self) -> tuple[PlacementId, ...]:
        """Placements with a worker on the node."""
        ...

    def progress(self) -> dict[JobId, float]:
        """Samples done so far by each job that this node leads, or by its copy on this node."""
        ...

    def troubles(self) -> tuple[str, ...]:
        """What its workers wait for because of the node, in words, such as a disk that does not answer."""
        ...


class RunnerFactory(Protocol):
    """What the setting `runner` names: an entry point of `hopyard.runners`, or `module:attribute`."""

    def __call__(self, settings: Settings, clock: Clock) -> Runner: ...
