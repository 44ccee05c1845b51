"""The seam between an emulated node and the world it stands in: what a job would really do there.

The ground truth is handed to the agent by name (`HOPYARD_WORLD`), and nobody else reads it.
"""

from collections.abc import Sequence
from typing import Protocol

from schemas.calibration import Ring
from schemas.catalogue import CatalogueFile
from schemas.cluster import Node
from schemas.jobs import JobSpec
from schemas.measurements import Measured, Stretch
from schemas.placement import Gang, Mode
from schemas.settings import Settings


class DoesNotFit(RuntimeError):
    """The job cannot run on this GPU type at all (out of memory, unknown model); the text says why."""


class World(Protocol):
    """A pure function of its seed: the same question always has the same answer."""

    modes: frozenset[type[Mode]]
    """the modes of synchronisation that it knows; it is asked about no others"""
    workloads: tuple[str, ...]
    """those that it knows, each as `MODEL on DATASET`, in alphabetical order; empty: any"""

    def stretch(self, spec: JobSpec, nodes: Sequence[Node], gang: Gang, *, key: str, index: int) -> Stretch:
        """The `index`-th stretch of a placement; `key` (its placement id) seeds its draws.

        `nodes`: of the gang's members, in their order. Raises DoesNotFit.
        """
        ...

    def rota(
        self, jobs: Sequence[tuple[JobSpec, Gang]], nodes: Sequence[Node], *, key: str, index: int
    ) -> tuple[float, ...]:
        """samples/s of each job for the `index`-th stretch in which these take turns; `key` seeds its draws.

        `nodes`: of the members that all gangs have, in their order. Raises DoesNotFit.
        """
        ...

    def switch_s(self, spec: JobSpec) -> float:
        """Seconds that a GPU takes to go over to the job from another, its processes standing by."""
        ...

    def profile(self, spec: JobSpec, node: Node, *, iterations: int, key: str) -> Measured:
        """Raises DoesNotFit."""
        ...

    def all_reduce(self, ring: Ring, *, size: float, repeats: int, key: str) -> tuple[float, ...]:
        """Seconds that a ring takes to reduce `size` bytes, each time."""
        ...


class WorldFactory(Protocol):
    """What `HOPYARD_WORLD` names."""

    def __call__(self, settings: Settings, catalogue: CatalogueFile) -> World:
        """`catalogue`: what the user added to what the world knows by itself.

        Raises InvalidCatalogue, InvalidFile.
        """
        ...
