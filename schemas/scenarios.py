"""A scenario: a cluster, a workload and settings, as one YAML file that a user can copy and edit."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from schemas.base import File, Message
from schemas.catalogue import CatalogueFile
from schemas.cluster import ClusterFile
from schemas.jobs import JobFile, Name, Positive

HourOfDay = Annotated[int, Meta(ge=0, le=24)]


class PoissonWorkload(File, frozen=True, kw_only=True, tag_field="arrivals", tag="poisson"):
    """`count` jobs drawn from a mix of models, arriving as a Poisson process, or all at once."""

    count: Annotated[int, Meta(ge=1, le=1_000_000)]
    rate_per_hour: Positive | None = None
    """None: all at time 0"""
    mix: Name
    gpu_hours_mean: Positive | None = None
    """scales the drawn sizes so that their mean is this; sizes stay inside their class"""
    seed: int = 1


class TraceColumns(File, frozen=True, kw_only=True):
    """Which column of a CSV file with a header is what.

    Times are seconds, or as `COLUMN:UNIT` says: us, ms, s, min, h. Times of submission may also be dates.
    """

    submit: str
    gpus: str
    seconds: str | None = None
    """how long the job ran on so many GPUs; None: a size is drawn from the class of its model"""
    model: str | None = None
    """None, or a model that the mix does not have: one of the mix is dealt"""
    user: str | None = None


class TraceWorkload(File, frozen=True, kw_only=True, tag_field="arrivals", tag="trace"):
    """Arrivals from a file of a known format; models of the mix are given to its jobs."""

    path: str
    format: Literal["philly", "microsoft", "gavel", "pollux"] | None = None
    """None: by the look of the file"""
    columns: TraceColumns | None = None
    """for a file of no known format"""
    mix: Name
    hours: tuple[HourOfDay, HourOfDay] | None = None
    """only jobs that came between these hours of the day, by the trace's own clock"""
    limit: Annotated[int, Meta(ge=1)] | None = None
    """only the first so many of them"""
    sample: Annotated[int, Meta(ge=1)] | None = None
    """so many of them, drawn by the seed"""
    longest_gpu_hours: Positive | None = None
    """a longer job is cut to this"""
    at_once: bool = False
    """all jobs are there at time 0"""
    by_size: bool = False
    """a job whose model the trace does not name is dealt one of its own class of size"""
    checkpoint_interval_s: Annotated[float, Meta(ge=1, le=1e6)] = 600.0
    """seconds of running between two periodic checkpoints of a job"""
    seed: int = 1


class ListedWorkload(File, frozen=True, kw_only=True, tag_field="arrivals", tag="listed"):
    """Jobs written out, each with its arrival in seconds from the start."""

    jobs: Annotated[list["ArrivingJob"], Meta(min_length=1)]


class ArrivingJob(File, frozen=True, kw_only=True):
    at_s: Annotated[float, Meta(ge=0, le=1e9)]
    job: JobFile


WorkloadSource = PoissonWorkload | TraceWorkload | ListedWorkload


class PolicyChange(File, frozen=True, kw_only=True):
    at_s: Annotated[float, Meta(ge=0, le=1e9)]
    """seconds from the start"""
    policy: Annotated[str, Meta(min_length=1)]


class ScenarioFile(File, frozen=True, kw_only=True):
    name: Name
    about: str = ""
    cluster: Name | ClusterFile
    """a name of a cluster that ships with the product, or the cluster itself"""
    workload: WorkloadSource
    settings: dict[str, str | int | float | bool] = msgspec.field(default_factory=dict)
    """settings of the services, by the names that `hopyard config show` prints"""
    policies: list[PolicyChange] = msgspec.field(default_factory=list)
    """chosen while it runs, after the one that the settings name"""
    catalogue: CatalogueFile = CatalogueFile()
    """models, data sets, GPUs and servers of the emulated world, beside those that ship with the product"""


class Arrival(Message, frozen=True, kw_only=True):
    """A job and when it is submitted, seconds from the start of the replay."""

    at_s: float
    job: JobFile
