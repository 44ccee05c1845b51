"""The emulated world: the ground truth, which only agents may ask and no scheduler reads.

It is richer than Hops eq. 1–5 on purpose. Compute times follow a roofline and differ by server; each
process draws its data times by itself, so that waiting emerges from the slowest of them; rings have
latency and saturate slowly; every iteration has noise. Parameters come from `loadgen.catalogue`.
"""

from loadgen.world.emulated import EmulatedWorld
from loadgen.world.learnt import LearntWorld
from loadgen.world.structure import structure_of
from loadgen.world.table import TableWorld
from schemas.catalogue import CatalogueFile
from schemas.settings import Settings

__all__ = ["EmulatedWorld", "LearntWorld", "TableWorld", "emulated", "learnt", "table"]


def emulated(settings: Settings, catalogue: CatalogueFile) -> EmulatedWorld:
    """A `WorldFactory`. Raises InvalidCatalogue."""
    return EmulatedWorld(settings.seed, catalogue, settings.switching, structure_of(settings.world_structure))


def learnt(settings: Settings, catalogue: CatalogueFile) -> LearntWorld:  # noqa: ARG001 - it knows what was measured
    """A `WorldFactory`: of the file that the setting `learnt_from` names. Raises InvalidFile."""
    return LearntWorld.of_file(settings.learnt_from, seed=settings.seed)


def table(settings: Settings, catalogue: CatalogueFile) -> TableWorld:
    """A `WorldFactory`: of the speeds in the catalogue. Raises InvalidCatalogue."""
    return TableWorld(settings.seed, catalogue, settings.switching)
