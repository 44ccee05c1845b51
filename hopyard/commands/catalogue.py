"""catalogue: what emulated nodes know."""

from enum import StrEnum
from typing import Annotated

import typer

from hopyard.commands.options import AsJson
from hopyard.show.terminal import console, show_json


class Kind(StrEnum):
    MODELS = "models"
    DATASETS = "datasets"
    GPUS = "gpus"
    SERVERS = "servers"


def catalogue(
    kind: Annotated[
        Kind | None, typer.Argument(metavar="KIND", help=f"One of {', '.join(Kind)}; left out: all.")
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """List the models, data sets, GPUs and servers of the emulated world.

    Emulated nodes train these models and no others; a job of another is refused
    when it is submitted. With --json every figure, and where it is from.

    $ hopyard catalogue models
    $ hopyard catalogue gpus --json
    """
    from hopyard.show.catalogue import catalogue_tables  # noqa: PLC0415 - brings the catalogue
    from loadgen.catalogue import specs  # noqa: PLC0415 - as above

    found = {
        Kind.MODELS: list(specs.models().values()),
        Kind.DATASETS: specs.datasets(),
        Kind.GPUS: specs.gpus(),
        Kind.SERVERS: specs.servers(),
    }
    kinds = list(Kind) if kind is None else [kind]
    if as_json:
        show_json({each: found[each] for each in kinds})
        return
    tables = catalogue_tables()
    for number, each in enumerate(kinds):
        if number:
            console().print()
        console().print(tables[each])


def register(app: typer.Typer) -> None:
    app.command("catalogue")(catalogue)
