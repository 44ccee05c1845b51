"""The file in which an agent records a worker for its next life.

A worker without a claim was never started. A claim is removed once the worker is gone and reported.
"""

import contextlib
from pathlib import Path

import msgspec

from schemas.events import StartOrdered
from services.agent.process.kernel.identities import Identity
from shared.runtime.disk import naming

NAME = "claim.json"


class RankClaim(msgspec.Struct, frozen=True):
    rank: int
    process: Identity | None = None
    """None: the rank is not started yet"""


class WorkerClaim(msgspec.Struct, frozen=True, kw_only=True):
    order: StartOrdered
    gpu_indices: tuple[int, ...]
    ranks: tuple[RankClaim, ...]
    """empty: the job needs no process here, since it has no task on this node"""
    groups: dict[str, str] = {}
    """folders of its control groups by controller; the next life may run below another group, so it could not
    work them out"""
    port: int | None = None
    """port at which ranks meet rank 0, if the command is no Python script"""


def write(folder: Path, claim: WorkerClaim) -> None:
    """Write a claim atomically. Raises OSError."""
    part = folder / f"{NAME}.part"
    part.touch(0o600)  # a job's environment is in it
    with naming(folder):
        part.write_bytes(msgspec.json.encode(claim))
    part.replace(folder / NAME)


def read(folder: Path) -> WorkerClaim | None:
    """The claim in a worker's folder; None: there is none, or it cannot be read."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode((folder / NAME).read_bytes(), type=WorkerClaim)
    return None
