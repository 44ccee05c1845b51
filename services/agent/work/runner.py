"""The seam between the agent's decisions and the processes they are about; a runner is a plug-in.

Above it stand tasks and reports, below it the processes themselves, or a world that stands in for them.
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
"""a line that a process of a job printed: the job, the rank of the process in its gang, the line"""


class Runner(Protocol):
    """Runs workers. Every call but `adopt` and `all_reduces` returns at once; what comes of it is reported.

    Whatever goes wrong with a worker is a report, and no call raises for it. The last report about a worker
    is a `LastReport`, and there is one for every worker that was started. A call about a worker that is not
    there changes nothing: its last report is on the way. Nor does a call that repeats an earlier one.
    """

    modes: frozenset[type[Mode]]
    """the modes of synchronisation that it can run; it gets no gangs in others"""
    workloads: tuple[str, ...]
    """what it can train, each as `MODEL on DATASET`; empty: anything"""
    runs_commands: bool
    """whether it starts the command of a job, which then must have one"""
    residents_max: int
    """processes of jobs that stand by between their placements, and run, on a GPU; 0: none stands by"""

    async def adopt(self) -> tuple[PlacementId, ...]:
        """Find the workers of an earlier life, those too that ended while nobody looked; called before `run`.

        `run` then reports about them as about its own, beginning with Started where they are up: a report
        that the earlier life made already may come again. One that nobody wants any more is stopped.
        """
        ...

    async def run(self, report: Callable[[Report], None], write: Write | None) -> None:
        """Run until cancelled, then end all workers. `write` takes what jobs print; None: nobody wants it."""
        ...

    def start(self, order: StartOrdered, gpu_indices: tuple[int, ...]) -> None:
        """Bring the processes up; with `order.profile_iterations`, measure.

        Processes of others that still end on these GPUs are waited for.
        """
        ...

    def train(self, placement_id: PlacementId, meeting: str) -> None:
        """Every worker of the gang is up: its processes may meet and train.

        `meeting`: `host:port`, as the gang's rank 0 reported it; this is called on every node then. Empty:
        they need not meet, and this is called on the nodes of the gang's leaders, or on all of a rota.
        """
        ...

    def turn(self, placement_id: PlacementId, gang: Gang) -> None:
        """In its rota the gang takes these turns from now on."""
        ...

    def stop(self, placement_id: PlacementId) -> None:
        """Checkpoint and end."""
        ...

    async def all_reduces(
        self, question: OpenAllReduce | JoinAllReduce, gpu_indices: tuple[int, ...]
    ) -> AllReduceMeeting | AllReduceTimes:
        """Say where nodes could meet, or take part until all are done: the first node times them.

        `gpu_indices`: those that may be used, of which the question may want fewer. Raises OSError: they
        cannot be timed.
        """
        ...

    def running(self) -> tuple[PlacementId, ...]: ...

    def progress(self) -> dict[JobId, float]:
        """Samples done so far by the jobs that train under this node's lead, of each or of its copy here."""
        ...

    def troubles(self) -> tuple[str, ...]:
        """What its workers wait for that the node should give them, in words."""
        ...


class RunnerFactory(Protocol):
    """What the setting `runner` names: an entry point of `hopyard.runners`, or `module:attribute`."""

    def __call__(self, settings: Settings, clock: Clock) -> Runner: ...
