"""Merges the entries of two catalogues; and the error for entries that contradict one another."""

from schemas.catalogue import CatalogueFile


class InvalidCatalogue(ValueError):
    """Entries whose fields are well-formed but make no sense together; `field`: a path like `$.models[0]`."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


def merged(first: CatalogueFile, then: CatalogueFile) -> CatalogueFile:
    """The entries of both catalogues; of two entries with one name, that of `then`."""
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
