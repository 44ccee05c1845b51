"""Entries of a catalogue put together, and what is wrong with some."""

from schemas.catalogue import CatalogueFile


class InvalidCatalogue(ValueError):
    """Entries whose fields are well-formed and make no sense together; `field` is a path as `$.models[0]`."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


def merged(first: CatalogueFile, then: CatalogueFile) -> CatalogueFile:
    """Entries of both; where both have one of a name, that of `then`."""
    models = {(row.model, row.dataset): row for row in (*first.models, *then.models)}
    speeds = {(row.model, row.dataset, row.batch): row for row in (*first.speeds, *then.speeds)}
    return CatalogueFile(
        models=list(models.values()),
        datasets=first.datasets | then.datasets,
        gpus=first.gpus | then.gpus,
        servers=first.servers | then.servers,
        mixes=first.mixes | then.mixes,
        speeds=list(speeds.values()),
    )
