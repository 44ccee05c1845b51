"""A saved problem of the planner, and its solution: what `hopyard solve` reads and writes.

The program is that of Hops, eq. 11 to 13: choose at most one configuration for each job, so that no node has
more GPUs in use than idle, and the sum of weight · gain is largest.
"""

from typing import Annotated, Final, Literal

from msgspec import Meta

from schemas.base import File, Message
from schemas.plans import Stage

SCHEMA: Final = "hopyard.problem/v1"
NOT_SAVED: Final = "problems are not saved"
"""event of the planner's log, with the `reason`"""

NodeIndex = Annotated[int, Meta(ge=0, le=999_999)]
Gpus = Annotated[int, Meta(ge=1, le=1_000_000)]
Value = Annotated[float, Meta(ge=0, le=1e100)]
"""bounded, so that sums stay finite"""


class SavedConfiguration(File, frozen=True, kw_only=True, gc=False):
    gain: Value
    """G_ij"""
    use: Annotated[dict[NodeIndex, Gpus], Meta(min_length=1)]
    """GPUs by node index"""


class SavedJob(File, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    weight: Value
    """(prior_i + bias)^λ"""
    configurations: list[SavedConfiguration]
    present: Annotated[int, Meta(ge=0)] | None = None
    """index of the configuration that the job has now, from 0; None: it has none"""


class SavedProblem(File, frozen=True, kw_only=True):
    schema: Literal["hopyard.problem/v1"]
    capacity: Annotated[list[Annotated[int, Meta(ge=0, le=1_000_000)]], Meta(max_length=1_000_000)]
    """idle GPUs, by node"""
    jobs: Annotated[list[SavedJob], Meta(max_length=1_000_000)]


class SolveResult(Message, frozen=True, kw_only=True):
    objective: float
    """Σ weight · gain of the chosen configurations"""
    bound: float
    """no choice is worth more"""
    gap: float
    """(bound − objective) / bound"""
    seconds: float
    backend: str
    stage: Stage
    choice: list[int | None]
    """by job: index into its own configurations, or null"""
