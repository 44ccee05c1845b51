"""A training job: as a user writes it (`JobFile`), and as services use it once it is accepted (`JobSpec`)."""

from functools import lru_cache
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from schemas.base import File, Message, written
from schemas.ids import Fingerprint, GpuType
from schemas.numbers import Amount, PlainLine, Rate, WholeNumber

Name = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$(?!\n)",  # in Python alone $ also ends before a newline
        description="up to 63 lower-case letters, digits and dashes, no dash at either end",
    ),
]
User = Annotated[
    str,
    Meta(
        pattern=r"^[^\x00-\x1f\x7f]*$(?!\n)",
        max_length=100,
        description="a name without control characters",
    ),
]
Count = Annotated[int, Meta(ge=1, le=100_000)]
Positive = Annotated[float, Meta(gt=0, le=1e18)]
SAMPLES_MAX = 1e18
Samples = Annotated[float, Meta(ge=1, le=SAMPLES_MAX)]
Folder = Annotated[
    str,
    Meta(
        pattern=r"^(?!.*/\.\.(/|$))(/[^\x00-\x1f\x7f]*)?$(?!\n)",
        max_length=4096,
        description="an absolute path without .. and without control characters",
    ),
]
Image = Annotated[
    str,
    Meta(
        pattern=r"^([A-Za-z0-9][A-Za-z0-9._/:@-]*)?$(?!\n)",
        max_length=500,
        description="the name of a container's image, such as pytorch/pytorch:2.6.0",
    ),
]
Duration = (
    Annotated[float, Meta(ge=1, le=1e8)]
    | Annotated[
        str,
        Meta(
            pattern=r"^([0-9]{1,9}(\.[0-9]{1,6})?[smhd]|([0-9]{1,5}|[0-9]{1,5}:[0-5]?[0-9]):[0-5][0-9])$(?!\n)",
            description="seconds, or a length of time such as 90m, 2h, 1.5d or 02:30:00",
        ),
    ]
)
Bytes = (
    Annotated[float, Meta(ge=0, le=1e15)]
    | Annotated[
        str,
        Meta(
            pattern=r"^[0-9]{1,12}(\.[0-9]{1,6})? ?([kKMGT]i?)?B$(?!\n)",
            description="bytes, or an amount such as 500MB, 8GB or 8GiB",
        ),
    ]
)


CHOICES_MAX = 4_096
"""largest number of GPU counts of one job"""


class Workload(File, frozen=True, kw_only=True):
    """What is trained. Jobs with equal fields share their measurements.

    A job is not accepted if one of these texts has control characters. Facts of earlier versions have some.
    """

    model: Annotated[str, Meta(min_length=1, max_length=200)]
    dataset: Annotated[str, Meta(min_length=1, max_length=200)]
    batch_size: Count
    """samples per GPU and iteration"""
    optimizer: Annotated[str, Meta(min_length=1, max_length=100)] = "sgd"
    code_version: Annotated[str, Meta(max_length=200)] = ""
    dataset_samples: Annotated[int, Meta(ge=1, le=1_000_000_000_000)] | None = None
    """samples in one epoch; needed only by a job whose length is given in epochs"""

    @property
    def fingerprint(self) -> Fingerprint:
        return _fingerprint(self.model, self.dataset, str(self.batch_size), self.optimizer, self.code_version)


@lru_cache(maxsize=4_096)
def _fingerprint(*parts: str) -> Fingerprint:
    return Fingerprint("|".join([part.replace("%", "%25").replace("|", "%7C") for part in parts]))


class GpuRange(File, frozen=True, kw_only=True):
    """Bounds of an elastic demand, expanded to at most `choices` GPU counts (the paper's R_num)."""

    min: Count
    max: Count
    choices: Annotated[int, Meta(ge=1, le=CHOICES_MAX)] | Literal["all"] = 8
    """`all`: every count between the bounds, of which there may be at most 4,096"""


class LearningRate(File, frozen=True, kw_only=True):
    """A learning rate tuned for `gpus` GPUs.

    `rule`: the learning rate of a batch k times as large: lr·k, lr·√k, or lr.
    """

    value: Positive
    gpus: Count = 1
    rule: Literal["linear", "sqrt", "constant"] = "linear"


class Checkpoint(File, frozen=True, kw_only=True):
    interval_s: Annotated[float, Meta(ge=1, le=1e6)] = 600.0
    """seconds of running between two periodic checkpoints"""
    folder: Folder = ""
    """folder of the checkpoints, which all nodes share; empty: one below the setting `jobs_folder`"""
    grace_s: Annotated[float, Meta(ge=1, le=86_400)] = 30.0
    """seconds from the order to stop until the job is killed, in which it has to save"""


Priority = Annotated[float, Meta(gt=0, le=1000)]


class JobFile(File, frozen=True, kw_only=True, omit_defaults=True):
    """A job as a user writes it, in YAML or JSON."""

    name: Name
    workload: Workload
    gpus: Count | Annotated[list[Count], Meta(min_length=1, max_length=64)] | GpuRange
    gpu_types: Annotated[list[GpuType], Meta(min_length=1, max_length=64)] | None = None
    samples: Samples | None = None
    epochs: Positive | None = None
    learning_rate: LearningRate | None = None
    learning_rates: dict[int, Positive] | None = None
    """learning rates by GPU count, where no rule fits; instead of `learning_rate`"""
    priority: Priority = 1.0
    """factor on the job's weight, in policies that weigh jobs"""
    project: Name = "default"
    user: User = ""
    """owner of the job, and the account as which it runs where agents are root; empty: the token's user. Only
    an operator may name another"""
    command: str | Annotated[list[str], Meta(max_length=1000)] = msgspec.field(default_factory=list)
    """the command as a list of words, or a line that `sh -c` runs"""
    checkpoint: Checkpoint = Checkpoint()
    working_directory: Folder = ""
    """absolute path of its processes' working directory, the same on every node; empty: `hopyard submit`
    writes the folder in which it runs, if the job has a command. Submitted by the API alone: the agent's
    working directory, or in a container the image's"""
    environment: dict[str, str] = {}
    """environment variables for its processes, besides those of the agent's environment"""
    image: Image = ""
    """image of the containers in which its processes run; empty: they run in no container"""
    cpus: Annotated[float, Meta(gt=0, le=1024)] | None = None
    """CPU cores per GPU; null: no limit"""
    memory: Bytes | None = None
    """main memory per GPU; null: no limit"""
    time_limit: Duration | None = None
    """running time, all placements together, after which it fails; null: no limit"""
    retries: Annotated[int, Meta(ge=0, le=100)] = 0
    """how often it is started again after its own processes failed"""
    preemptible: bool = True
    """false: once it runs, no plan moves or stops it, unless its node is drained, leaves or is lost"""
    modes: Annotated[list[Annotated[str, Meta(max_length=32)]], Meta(max_length=16)] | None = None
    """modes of synchronisation that its gang may have besides lockstep, such as relaxed; null: those in which
    profiling finds that its script can train, or any mode if profiling does not find out"""


class JobSpec(Message, frozen=True, kw_only=True, omit_defaults=True):
    """An accepted job: all defaults filled in, all alternatives of `JobFile` resolved."""

    name: PlainLine
    workload: Workload
    demand: Annotated[tuple[Count, ...], Meta(min_length=1, max_length=CHOICES_MAX)]
    """GPU counts with which the job can run, ascending (the paper's R)"""
    gpu_types: tuple[GpuType, ...] = written(())
    """GPU types that it may use; empty: any"""
    samples: Rate
    """training samples until the job is complete"""
    learning_rates: dict[int, Amount] = written({})
    """learning rates by GPU count"""
    priority: Rate = written(1.0)
    project: PlainLine = written("default")
    command: tuple[str, ...] = written(())
    checkpoint_interval_s: Rate = written(600.0)
    user: PlainLine = written("")
    working_directory: Folder = ""
    """working directory of its processes; empty: the agent's, or in a container the image's"""
    environment: dict[str, str] = {}
    """environment variables of its processes"""
    image: Image = ""
    """image of the containers in which its processes run; empty: they run in no container"""
    cpus: Rate | None = None
    """CPU cores per GPU; null: no limit"""
    memory: Amount | None = None
    """bytes of main memory per GPU; null: no limit"""
    time_limit_s: Rate | None = None
    """seconds of running, all placements together, after which it fails; null: no limit"""
    retries: WholeNumber = 0
    """how often it is started again after its own processes failed"""
    checkpoint_folder: Folder = ""
    """folder of its checkpoints, which all nodes share; empty: one below the setting `jobs_folder`"""
    grace_s: Amount = 30.0
    """seconds from the order to stop until its processes are killed, in which they have to save"""
    preemptible: bool = True
    """false: once it runs, no plan moves or stops it, unless its node is drained, leaves or is lost"""
    modes: Annotated[tuple[PlainLine, ...], Meta(max_length=16)] = ()
    """modes of synchronisation that its gang may have, lockstep among them; empty: the job's file lists none,
    so those that profiling finds, or any"""
