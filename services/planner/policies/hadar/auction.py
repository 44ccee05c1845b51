"""The input of Hadar's decision: what it asks the estimator, and what the dynamic program starts from."""

from collections.abc import Mapping, Sequence

import msgspec

from schemas.ids import JobId
from services.planner.policies.contract.view import Present
from services.planner.policies.hadar.bounds import Knapsack
from services.planner.policies.hadar.jobs import HadarJob
from services.planner.policies.hadar.offers import Finder, PricedPlace
from services.planner.policies.hadar.paces import Asked, Asker
from services.planner.policies.hadar.room import FreeGpus, Levels


class Inquired(msgspec.Struct, frozen=True):
    """The jobs and nodes of a view, and the rows that the estimator is asked about."""

    levels: Levels
    askers: tuple[Asker, ...]
    """jobs that the empty cluster has room for"""
    asked: Asked


class Auction(msgspec.Struct, frozen=True, kw_only=True):
    """The input of the dynamic program."""

    jobs: Mapping[JobId, HadarJob]
    """jobs of which some pace is known"""
    queue: Sequence[HadarJob]
    """the jobs whose places are decided, in the order of their turns"""
    offers: Mapping[JobId, Sequence[PricedPlace]]
    """by job of the queue: its places on the GPUs that are free when the round begins"""
    room: FreeGpus
    """the GPUs that are free when the round begins"""
    finder: Finder
    knapsack: Knapsack
    """the bound for the queue, before any of its jobs is decided"""
    kept: Mapping[JobId, Present]
    """jobs that keep their place, and are not in the queue"""
