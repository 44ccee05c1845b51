"""The interface to a world: the model of how fast jobs really train on emulated nodes.

It is the ground truth that estimates are compared with. Only agents ask it, by the setting `world`.
"""

from collections.abc import Hashable, Sequence
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
    """The model; the same question always has the same answer."""

    modes: frozenset[type[Mode]]
    """the modes of synchronisation that it can model; it is asked about no other"""
    workloads: tuple[str, ...]
    """the workloads that it can model, each as `MODEL on DATASET`, in alphabetical order; empty: any"""

    def stretch(self, spec: JobSpec, nodes: Sequence[Node], gang: Gang, *, key: str, index: int) -> Stretch:
        """The `index`-th stretch of a placement; `key` (its placement id) seeds its draws.

        `nodes`: of the gang's members, in their order. Raises DoesNotFit.
        """
        ...

    def alike(self, spec: JobSpec) -> Hashable:
        """All of a job that its speeds depend on: equal for two jobs that every gang would train alike."""
        ...

    def rota(
        self, jobs: Sequence[tuple[JobSpec, Gang]], nodes: Sequence[Node], *, key: str, index: int
    ) -> tuple[float, ...]:
        """samples/s of each job in the `index`-th stretch in which they take turns; `key` seeds its draws.

        `nodes`: of the members that all gangs have, in their order. Raises DoesNotFit.
        """
        ...

    def switch_s(self, spec: JobSpec) -> float:
        """Seconds to switch a GPU from another job to this one, whose processes stand by."""
        ...

    def profile(self, spec: JobSpec, node: Node, *, iterations: int, key: str) -> Measured:
        """The times of a measurement on one GPU of the node. Raises DoesNotFit."""
        ...

    def all_reduce(self, ring: Ring, *, size: float, repeats: int, key: str) -> tuple[float, ...]:
        """Seconds that the ring takes to all-reduce `size` bytes, for each of `repeats` times."""
        ...


class WorldFactory(Protocol):
    """What the setting `world` names: an entry point of `hopyard.worlds`, or `module:attribute`."""

    def __call__(self, settings: Settings, catalogue: CatalogueFile) -> World:
        """`catalogue`: the user's entries, besides those that the world has itself.

        Raises InvalidCatalogue, InvalidFile.
        """
        ...
