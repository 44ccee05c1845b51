"""What the core asks of the runner (work), and what it learns of it (reports)."""

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
    order: StartOrdered
    gpu_indices: tuple[int, ...]


class TrainWorker(msgspec.Struct, frozen=True):
    """The gang is whole: its training begins. `meeting`: `host:port` where its processes meet."""

    placement_id: PlacementId
    meeting: str = ""


class TurnWorker(msgspec.Struct, frozen=True):
    """Other turns of the gang in its rota."""

    placement_id: PlacementId
    gang: Gang


class StopWorker(msgspec.Struct, frozen=True):
    placement_id: PlacementId


class TimePaths(msgspec.Struct, frozen=True):
    """Time all-reduces, or take part in them, for the question of this ticket. `gpu_indices`: free GPUs."""

    ticket: int
    question: OpenAllReduce | JoinAllReduce
    gpu_indices: tuple[int, ...]


class ReadLines(msgspec.Struct, frozen=True):
    """Read what a job printed, for the question of this ticket."""

    ticket: int
    question: ReadOutput


# ---- reports


class LinesRead(msgspec.Struct, frozen=True):
    ticket: int
    page: OutputPage | Refused


class Timed(msgspec.Struct, frozen=True):
    """The result of a `TimePaths`."""

    ticket: int
    answer: AllReduceMeeting | AllReduceTimes


class GpusSeen(msgspec.Struct, frozen=True, kw_only=True):
    """How the GPUs of the node are, by index and in words; those that are well and unused are left out."""

    busy: dict[int, str]
    """in use, by our workers too"""
    broken: dict[int, str]
    """not to be used until they are mended"""


ALL_WELL = GpusSeen(busy={}, broken={})


class Started(msgspec.Struct, frozen=True):
    """The processes are up and restored.

    `meeting`: `host:port` where the gang's processes will meet, of the node of rank 0. `samples_restored`: in
    the checkpoint that they found; None: the one that was ordered.
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
    """Gone, all samples done that it was ordered to do: those of the job, or up to `StartOrdered.until`."""

    placement_id: PlacementId
    samples_done: float


class Failed(msgspec.Struct, frozen=True):
    """Gone by a fault of its own. `lasting`: it would fail on this GPU type every time.

    `absent`: its program, folder or image is not here.
    """

    placement_id: PlacementId
    reason: str
    lasting: bool = False
    exit_code: int | None = None
    signal: int | None = None
    absent: bool = False


class Interrupted(msgspec.Struct, frozen=True):
    """Gone by no fault of its own: a peer lost, a signal of others, the node out of memory, a faulty GPU.

    `samples_done`: in its last checkpoint; None: the runner does not know.
    """

    placement_id: PlacementId
    reason: str
    samples_done: float | None = None
    exit_code: int | None = None
    signal: int | None = None


LastReport = Profiled | Stopped | Completed | Failed | Interrupted
"""last report about a worker: it is gone, and its GPUs are free"""
Report = Started | Observed | Saved | LastReport
