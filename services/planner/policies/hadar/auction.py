"""The data that a decision of Hadar is made from."""

from collections.abc import Mapping, Sequence

import msgspec

from schemas.ids import JobId
from services.planner.policies.contract.view import Present
from services.planner.policies.hadar.bounds import Knapsack
from services.planner.policies.hadar.jobs import HadarJob
from services.planner.policies.hadar.offers import Finder, PricedPlace
from services.planner.policies.hadar.paces import Asked, Asker
from services.planner.policies.hadar.room import FreeGpus, Levels


class Seen(msgspec.Struct, frozen=True):
    """The view's data before anything is estimated."""

    levels: Levels
    askers: tuple[Asker, ...]
    """jobs that the empty cluster has room for"""
    asked: Asked


class Auction(msgspec.Struct, frozen=True, kw_only=True):
    """The input of the dynamic program."""

    jobs: Mapping[JobId, HadarJob]
    """those with a known pace"""
    queue: Sequence[HadarJob]
    offers: Mapping[JobId, Sequence[PricedPlace]]
    """to the queue, on the GPUs that are free when the round begins"""
    room: FreeGpus
    finder: Finder
    knapsack: Knapsack
    kept: Mapping[JobId, Present]
    """jobs that are not in the queue, and stay"""
