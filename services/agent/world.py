"""The seam between an emulated node and the world it stands in: what a job would really do there.

The ground truth is handed to the agent by name (`HOPYARD_WORLD`), and nobody else reads it.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from schemas.cluster import Node
from schemas.ids import NodeId
from schemas.jobs import JobSpec

Gang = Sequence[tuple[Node, int]]
"""nodes with the GPUs the job has there, the leader first"""


class DoesNotFit(RuntimeError):
    """The job cannot run on this GPU type at all (out of memory, unknown model); the text says why."""


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    """How a gang runs for a while."""

    throughput: float
    """samples/s of the whole gang, mean over the stretch, noise included"""
    data_s: dict[NodeId, tuple[float, ...]]
    """T_d of a few iterations, by node"""
    wait_s: dict[NodeId, tuple[float, ...]]
    """T_w of the same iterations: the wait for the slowest process"""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What running some iterations on one GPU shows; one number an iteration, seconds."""

    data_s: tuple[float, ...]
    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    update_s: tuple[float, ...]
    iteration_s: tuple[float, ...]
    parameters: float


class World(Protocol):
    """A pure function of its seed: the same question always has the same answer."""

    def stretch(self, spec: JobSpec, gang: Gang, *, key: str, index: int) -> Stretch:
        """The `index`-th stretch of a placement; `key` (its placement id) tells draws apart."""
        ...

    def profile(self, spec: JobSpec, node: Node, *, iterations: int, key: str) -> Measured:
        """Raises DoesNotFit."""
        ...

    def all_reduce(self, gang: Gang, *, size: float, repeats: int, key: str) -> tuple[float, ...]:
        """Seconds that a gang takes to reduce `size` bytes, each time."""
        ...


class WorldFactory(Protocol):
    """What `HOPYARD_WORLD` names."""

    def __call__(self, seed: int) -> World: ...
