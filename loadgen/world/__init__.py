"""The emulated world: the true speeds, which only agents may ask for and no scheduler reads.

It has more effects than Hops eq. 1–5, on purpose. Compute times follow a roofline and differ by server. Each
process draws its data times by itself, so waiting follows from the slowest. Rings have latency, and their
full bandwidth only for large messages. Every iteration has noise. Parameters come from `loadgen.catalogue`.
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
    """A `WorldFactory`, from the file that the setting `learnt_from` names. Raises InvalidFile."""
    return LearntWorld.of_file(settings.learnt_from, seed=settings.seed)


def table(settings: Settings, catalogue: CatalogueFile) -> TableWorld:
    """A `WorldFactory`, from the speeds in the catalogue. Raises InvalidCatalogue."""
    return TableWorld(settings.seed, catalogue, settings.switching)
