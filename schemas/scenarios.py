"""A scenario: a cluster, a workload and settings, as one YAML file that a user can copy and edit."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from schemas.base import File, Message
from schemas.catalogue import CatalogueFile
from schemas.cluster import ClusterFile
from schemas.jobs import JobFile, Name, Positive
from schemas.numbers import PlainLine
from schemas.settings import SEED_MOST

Seed = Annotated[int, Meta(ge=0, le=SEED_MOST)]
"""of all draws of a run; commands may choose another one"""
LATEST_S = 1e9
"""the latest that a job may arrive, or a policy be chosen, seconds from the start"""
HourOfDay = Annotated[int, Meta(ge=0, le=24)]
Column = Annotated[str, Meta(min_length=1)]


class PoissonWorkload(File, frozen=True, kw_only=True, tag_field="arrivals", tag="poisson"):
    """`count` jobs drawn from a mix of models, arriving as a Poisson process, or all at once."""

    count: Annotated[int, Meta(ge=1, le=1_000_000)]
    rate_per_hour: Positive | None = None
    """None: all arrive at time 0"""
    mix: Name
    gpu_hours_mean: Positive | None = None
    """mean to which the drawn sizes are scaled, each within the bounds of its class, so that few jobs may
    miss it; one that not even many jobs of the mix reach is refused. None: they are not scaled"""
    seed: Seed = 1


class TraceColumns(File, frozen=True, kw_only=True):
    """Names of the columns of a CSV file with a header.

    Times are seconds, or as `COLUMN:UNIT` says: us, ms, s, min, h. Times of submission may also be dates.
    """

    submit: Column
    gpus: Column
    seconds: Column | None = None
    """how long the job ran on these GPUs; None: a size is drawn from the class of its model"""
    model: Column | None = None
    """None, or if the mix lacks the model: the job gets a model of the mix"""
    user: Column | None = None


class TraceWorkload(File, frozen=True, kw_only=True, tag_field="arrivals", tag="trace"):
    """Arrivals from a trace file; its jobs get models of the mix."""

    path: str
    format: Literal["philly", "microsoft", "gavel", "pollux"] | None = None
    """None: it is recognised from the file"""
    columns: TraceColumns | None = None
    """for a CSV file in none of these formats"""
    mix: Name
    hours: tuple[HourOfDay, HourOfDay] | None = None
    """only jobs that arrived between these hours of the day, by the trace's own clock"""
    limit: Annotated[int, Meta(ge=1)] | None = None
    """only the first `limit` of them"""
    sample: Annotated[int, Meta(ge=1)] | None = None
    """only `sample` of them, drawn by the seed"""
    longest_gpu_hours: Positive | None = None
    """size to which a larger job is cut"""
    at_once: bool = False
    """true: all jobs arrive at time 0"""
    by_size: bool = False
    """true: a job without a model of its own gets one of its size class"""
    checkpoint_interval_s: Annotated[float, Meta(ge=1, le=1e6)] = 600.0
    """seconds of running between two periodic checkpoints of a job"""
    seed: Seed = 1


class ListedWorkload(File, frozen=True, kw_only=True, tag_field="arrivals", tag="listed"):
    """Jobs that the scenario lists, each with its arrival."""

    jobs: Annotated[list["ArrivingJob"], Meta(min_length=1)]


class ArrivingJob(File, frozen=True, kw_only=True):
    at_s: Annotated[float, Meta(ge=0, le=LATEST_S)]
    """seconds from the start"""
    job: JobFile


WorkloadSource = PoissonWorkload | TraceWorkload | ListedWorkload


class PolicyChange(File, frozen=True, kw_only=True):
    at_s: Annotated[float, Meta(ge=0, le=LATEST_S)]
    """seconds from the start"""
    policy: Annotated[str, Meta(min_length=1)]


class ScenarioFile(File, frozen=True, kw_only=True):
    name: Name
    about: str = ""
    cluster: PlainLine | ClusterFile
    """the name of a cluster that ships with hopyard, the path of a cluster's file, or the cluster itself"""
    workload: WorkloadSource
    settings: dict[str, str | int | float | bool] = msgspec.field(default_factory=dict)
    """settings of the services, by the names that `hopyard config show` prints"""
    policies: list[PolicyChange] = msgspec.field(default_factory=list)
    """policies that are chosen while it runs; it begins with the one that the settings name"""
    catalogue: CatalogueFile = CatalogueFile()
    """models, data sets, GPUs and servers of the emulated world, besides those that ship with hopyard"""


class Arrival(Message, frozen=True, kw_only=True):
    """A job and when it is submitted, seconds from the start of the replay."""

    at_s: float
    job: JobFile
    traced_gpus: int | None = None
    """the GPUs of its trace's job, where it asks for fewer"""
    traced_model: str | None = None
    """the model of its trace's job, where it trains another, as the mix lacks that one"""
