"""Options of HLAS, HLAS-P and HLAS-L."""

from typing import Annotated

from msgspec import Meta

from services.planner.policies.hlas.tasks import Fill
from services.planner.policies.kit.rigid import RigidOptions
from services.planner.policies.kit.thresholds import Thresholds


class HlasOptions(RigidOptions, frozen=True, kw_only=True):
    hlas_thresholds: Thresholds = "60 240 960 3840 15360"
    """E: the virtual sizes in seconds at which each queue but the last ends, ascending"""
    groups: Annotated[int, Meta(ge=0, le=100_000)] = 0
    """U: groups of GPUs; 0: one for every four GPUs"""
    hlas_fill: Fill = "spread"
    """how the tasks of a round go to GPUs: `spread`, each where it ends first; `one-each`, one to each GPU in
    turn"""


class HlasPOptions(HlasOptions, frozen=True, kw_only=True):
    predictor: str = "history"
    """which predictor says how long a job will run further: none, history, or another one that is
    installed"""


class HlasLOptions(HlasOptions, frozen=True, kw_only=True):
    predictor: str = "fit"
    """which predictor says how long a job will run further; fit: a fit of its loss curve, in emulation
    only"""
