"""What the user of HLAS and HLAS-P may choose."""

from typing import Annotated

from msgspec import Meta

from services.planner.policies.hlas.tasks import Fill
from services.planner.policies.kit.rigid import RigidOptions
from services.planner.policies.kit.thresholds import Thresholds


class HlasOptions(RigidOptions, frozen=True, kw_only=True):
    hlas_thresholds: Thresholds = "60 240 960 3840 15360"
    """E: where each queue but the last ends, ascending: seconds of virtual size"""
    groups: Annotated[int, Meta(ge=0, le=100_000)] = 0
    """U: groups of GPUs; 0: one for every four GPUs"""
    hlas_fill: Fill = "spread"
    """the tasks of a round go to GPUs by earliest end, or one to each in turn"""


class HlasPOptions(HlasOptions, frozen=True, kw_only=True):
    predictor: str = "history"
    """who says how long a job will run on: none, history, or another one that is installed"""


class HlasLOptions(HlasOptions, frozen=True, kw_only=True):
    predictor: str = "fit"
    """who says how long a job will run on; fit: the loss curve, in emulation"""
