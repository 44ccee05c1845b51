"""The agent's order to this process, in environment variables. Outside hopyard all fields have defaults."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

WITHOUT_ATTACH = (
    "its script does not call attach of hopjob: it cannot train a share of its job as a copy, nor have a GPU "
    "compute several batches of an update, nor take turns on a GPU"
)


@dataclass(frozen=True)
class Order:
    rank: int = 0
    ranks: int = 1
    """number of ranks that train together: those of the gang, or of this copy of the job"""
    local_rank: int = 0
    socket: str = ""
    """the agent's socket; empty: the script runs by itself"""
    orphan_s: float = float("inf")
    """seconds for which the agent may be away"""
    last: str = ""
    """file for the last message, in case the agent is away"""
    placement: str = ""
    address: str = ""
    """host name or IP at which other nodes reach this node"""
    checkpoints: str = ""
    """folder of the checkpoints; empty: none are written"""
    interval_s: float = 600.0
    samples: float | None = None
    """samples of the whole job; None: the script decides"""
    until: float | None = None
    """for a copy: the job's number of samples at which this copy's share is done; None: it is no copy"""
    node: str = ""
    merge: str = "weighted"
    """how weights of copies are averaged: by samples done, or `plain`, all alike"""
    batch_size: int | None = None
    """samples per GPU and update"""
    shares: tuple[int, ...] = ()
    """samples of an update by rank, if they differ; empty: every rank takes a batch"""
    tasks: tuple[int, ...] = ()
    """batches of an update by rank, computed one after another; empty: one for every rank"""
    turns: bool = False
    """whether other jobs use this GPU too; the agent then gives the turns"""
    learning_rate: float | None = None
    """learning rate for this number of GPUs; None: the script's own"""
    profile: int | None = None
    """iterations to measure; None: the process trains"""

    @property
    def copy(self) -> bool:
        return self.until is not None and self.profile is None

    @property
    def needs_attach(self) -> bool:
        """Whether only a script with `attach` can do what is ordered."""
        return self.copy or bool(self.tasks) or self.turns

    @property
    def goal(self) -> float | None:
        """The job's number of samples at which this process is done; None: the script decides."""
        return self.samples if self.until is None else self.until

    @property
    def managed(self) -> bool:
        """Whether an agent may stop this process and start it elsewhere."""
        return bool(self.socket or self.checkpoints)


def read(environment: Mapping[str, str] = os.environ) -> Order:
    get = environment.get
    return Order(
        rank=int(get("RANK") or 0),
        ranks=int(get("WORLD_SIZE") or 1),
        local_rank=int(get("LOCAL_RANK") or 0),
        socket=get("HOPJOB_SOCKET", ""),
        orphan_s=float(get("HOPJOB_ORPHAN_S") or "inf"),
        last=get("HOPJOB_LAST", ""),
        placement=get("HOPJOB_PLACEMENT", ""),
        address=get("HOPJOB_ADDRESS", ""),
        checkpoints=get("HOPJOB_CHECKPOINTS", ""),
        interval_s=float(get("HOPJOB_CHECKPOINT_INTERVAL_S") or 600),
        samples=_number(get("HOPJOB_SAMPLES")),
        until=_number(get("HOPJOB_UNTIL")),
        node=get("HOPJOB_NODE", ""),
        merge=get("HOPJOB_MERGE") or "weighted",
        batch_size=_count(get("HOPJOB_BATCH_SIZE")),
        shares=_counts(get("HOPJOB_SHARES", "")),
        tasks=_counts(get("HOPJOB_TASKS", "")),
        turns=bool(get("HOPJOB_TURNS")),
        learning_rate=_number(get("HOPJOB_LEARNING_RATE")),
        profile=_count(get("HOPJOB_PROFILE")),
    )


def _number(text: str | None) -> float | None:
    return float(text) if text else None


def _counts(text: str) -> tuple[int, ...]:
    return tuple(int(one) for one in text.split(",") if one)


def _count(text: str | None) -> int | None:
    return int(float(text)) if text else None
