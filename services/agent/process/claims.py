"""What an agent writes down about a worker, for its next life.

A worker without a claim was never started; one whose claim is taken away is gone, and was reported.
"""

import contextlib
from pathlib import Path

import msgspec

from schemas.events import StartOrdered
from services.agent.process.kernel.identities import Identity

NAME = "claim.json"


class RankClaim(msgspec.Struct, frozen=True):
    rank: int
    process: Identity | None = None
    """None: it is about to be started"""


class WorkerClaim(msgspec.Struct, frozen=True, kw_only=True):
    order: StartOrdered
    gpu_indices: tuple[int, ...]
    ranks: tuple[RankClaim, ...]
    """empty: the job has no task on this node of its rota"""
    groups: dict[str, str] = {}
    """folders of its control groups by controller: the next agent may be in another group itself"""
    port: int | None = None
    """port where ranks meet rank 0 of a command that is no script"""


def write(folder: Path, claim: WorkerClaim) -> None:
    """At once or not at all. Raises OSError."""
    part = folder / f"{NAME}.part"
    part.touch(0o600)  # a job's environment is in it
    part.write_bytes(msgspec.json.encode(claim))
    part.replace(folder / NAME)


def read(folder: Path) -> WorkerClaim | None:
    """None: there is none, or one that cannot be read."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode((folder / NAME).read_bytes(), type=WorkerClaim)
    return None
