"""Messages between the core and the runner: work that the core orders, and reports that come back."""

import msgspec

from schemas.calibration import AllReduceMeeting, AllReduceTimes
from schemas.events import StartOrdered
from schemas.ids import PlacementId
from schemas.measurements import Measured, Stretch
from schemas.output import OutputPage
from schemas.placement import Gang
from schemas.questions import JoinAllReduce, OpenAllReduce, ReadOutput, Refused

# ---- work


class StartWorker(msgspec.Struct, frozen=True):
    """Start the processes of a worker on these GPUs."""

    order: StartOrdered
    gpu_indices: tuple[int, ...]


class TrainWorker(msgspec.Struct, frozen=True):
    """All workers of the gang are up: train. `meeting`: `host:port` at which its processes meet."""

    placement_id: PlacementId
    meeting: str = ""


class TurnWorker(msgspec.Struct, frozen=True):
    """Change the turns of a placement in its rota to those of `gang`."""

    placement_id: PlacementId
    gang: Gang


class StopWorker(msgspec.Struct, frozen=True):
    """Have the worker save and end."""

    placement_id: PlacementId


class TimeAllReduces(msgspec.Struct, frozen=True):
    """Open or join timed all-reduces, for the question of this ticket. `gpu_indices`: free GPUs."""

    ticket: int
    question: OpenAllReduce | JoinAllReduce
    gpu_indices: tuple[int, ...]


class ReadLines(msgspec.Struct, frozen=True):
    """Read what a job printed, for the question of this ticket."""

    ticket: int
    question: ReadOutput


# ---- reports


class LinesRead(msgspec.Struct, frozen=True):
    """The result of a `ReadLines`."""

    ticket: int
    page: OutputPage | Refused


class AllReducesTimed(msgspec.Struct, frozen=True):
    """The result of a `TimeAllReduces`."""

    ticket: int
    answer: AllReduceMeeting | AllReduceTimes


class GpusSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the node's GPUs, by index: what is wrong, in words. Healthy unused GPUs are left out."""

    busy: dict[int, str]
    """GPUs in use, also by workers of this agent: by index, how they are used"""
    broken: dict[int, str]
    """GPUs that must not be used until they are repaired: by index, what is wrong"""


ALL_WELL = GpusSeen(busy={}, broken={})


class Started(msgspec.Struct, frozen=True):
    """The processes are up, and have restored a checkpoint.

    `meeting`: from the node of rank 0, `host:port` at which the gang's processes will meet.
    `samples_restored`: samples in the checkpoint that they found; None: as in the order.
    """

    placement_id: PlacementId
    meeting: str = ""
    samples_restored: float | None = None


class Observed(msgspec.Struct, frozen=True):
    """How the gang ran for the last `seconds`."""

    placement_id: PlacementId
    seconds: float
    stretch: Stretch


class Saved(msgspec.Struct, frozen=True):
    """A periodic checkpoint was written."""

    placement_id: PlacementId
    samples_done: float


class Profiled(msgspec.Struct, frozen=True):
    """A measurement is done, and its process is gone."""

    placement_id: PlacementId
    measured: Measured


class Stopped(msgspec.Struct, frozen=True):
    """The worker is gone, as ordered. `samples_done`: in its checkpoint."""

    placement_id: PlacementId
    samples_done: float


class Completed(msgspec.Struct, frozen=True):
    """The worker is gone, and has done all samples of the job, or of its copy (`StartOrdered.until`).

    `samples_trained`: those after which its script ended by itself; None: it did not.
    """

    placement_id: PlacementId
    samples_done: float
    samples_trained: float | None = None


class Failed(msgspec.Struct, frozen=True):
    """The worker is gone by a fault of the job. `lasting`: it would fail on this GPU type every time.

    `absent`: its program, folder or image is missing on this node. `whole_workload`: by what it trains alone,
    so that every job of its workload would fail on this GPU type.
    """

    placement_id: PlacementId
    reason: str
    lasting: bool = False
    exit_code: int | None = None
    signal: int | None = None
    absent: bool = False
    whole_workload: bool = False


class Interrupted(msgspec.Struct, frozen=True):
    """The worker is gone by no fault of the job: a lost peer, a foreign signal, a full node, a broken GPU.

    `samples_done`: in its last checkpoint; None: not known.
    """

    placement_id: PlacementId
    reason: str
    samples_done: float | None = None
    exit_code: int | None = None
    signal: int | None = None


class NotStarted(msgspec.Struct, frozen=True):
    """The node could not start the worker, by no fault of the job, of which nothing ran."""

    placement_id: PlacementId
    reason: str


LastReport = Profiled | Stopped | Completed | Failed | Interrupted | NotStarted
"""the last report about a worker, which is gone; its GPUs are free"""
Report = Started | Observed | Saved | LastReport
