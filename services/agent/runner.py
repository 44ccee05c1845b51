"""The seam between the agent's decisions and the processes they are about.

Above: what the core asks for (work) and what it is told (reports). Below: who does it.
"""

from collections.abc import Callable
from typing import Protocol

import msgspec

from schemas.calibration import AllReduceTimes
from schemas.events import StartOrdered
from schemas.ids import JobId, PlacementId
from schemas.questions import TimeAllReduce
from services.agent.world import Measured, Stretch

# ---- work


class StartWorker(msgspec.Struct, frozen=True):
    order: StartOrdered
    gpu_indices: tuple[int, ...]


class TrainWorker(msgspec.Struct, frozen=True):
    """The gang is whole: its leader's training begins."""

    placement_id: PlacementId


class StopWorker(msgspec.Struct, frozen=True):
    placement_id: PlacementId


class TimePaths(msgspec.Struct, frozen=True):
    """Time all-reduces on idle GPUs, and say it to whoever asked."""

    ticket: int
    question: TimeAllReduce


# ---- reports


class Timed(msgspec.Struct, frozen=True):
    """The all-reduces are timed."""

    ticket: int
    times: AllReduceTimes


class Started(msgspec.Struct, frozen=True):
    """The processes are up and restored."""

    placement_id: PlacementId


class Observed(msgspec.Struct, frozen=True):
    """How the gang ran for the last `seconds`."""

    placement_id: PlacementId
    seconds: float
    stretch: Stretch


class Saved(msgspec.Struct, frozen=True):
    """A periodic checkpoint is written."""

    placement_id: PlacementId
    samples_done: float


class Profiled(msgspec.Struct, frozen=True):
    """The iterations are measured, and the process is gone."""

    placement_id: PlacementId
    measured: Measured


class Stopped(msgspec.Struct, frozen=True):
    """Gone on order, with this in the checkpoint."""

    placement_id: PlacementId
    samples_done: float


class Completed(msgspec.Struct, frozen=True):
    """Gone, all samples done."""

    placement_id: PlacementId
    samples_done: float


class Failed(msgspec.Struct, frozen=True):
    """Gone by a fault of its own. `lasting`: it would fail on this GPU type every time."""

    placement_id: PlacementId
    reason: str
    lasting: bool = False


Report = Started | Observed | Saved | Profiled | Stopped | Completed | Failed


class Runner(Protocol):
    """Runs workers. Every call returns at once; what comes of it is reported.

    The last report about a worker is one of Profiled, Stopped, Completed, Failed. A call about a worker
    that is not there changes nothing: its last report is on the way.
    """

    async def run(self, report: Callable[[Report], None]) -> None:
        """Open for as long as it is not cancelled; then whatever runs is ended."""
        ...

    def start(self, order: StartOrdered, gpu_indices: tuple[int, ...]) -> None:
        """Bring the processes up; with `order.profile_iterations`, measure."""
        ...

    def train(self, placement_id: PlacementId) -> None:
        """Called for a gang's leader alone."""
        ...

    def stop(self, placement_id: PlacementId) -> None:
        """Checkpoint and end."""
        ...

    async def all_reduces(self, question: TimeAllReduce) -> AllReduceTimes:
        """Time them, one after the other."""
        ...

    def running(self) -> tuple[PlacementId, ...]: ...

    def progress(self) -> dict[JobId, float]:
        """Samples done so far by the jobs that train under this node's lead."""
        ...
