"""A user's own entries of the catalogue, from a file."""

from pathlib import Path

from loadgen.catalogue.specs import catalogue_with
from schemas.catalogue import CatalogueFile
from shared.domain.catalogue import InvalidCatalogue
from shared.runtime.files import fault, read_file


def read_catalogue(path: str | Path) -> CatalogueFile:
    """Raises InvalidFile."""
    more = read_file(path, CatalogueFile)
    check_catalogue(more, path, "$")
    return more


def check_catalogue(more: CatalogueFile, path: str | Path, field: str) -> None:
    """`field`: where in the file the entries stand. Raises InvalidFile."""
    try:
        catalogue_with(more)
    except InvalidCatalogue as error:
        raise fault(path, field + error.field.removeprefix("$"), error.reason) from None
