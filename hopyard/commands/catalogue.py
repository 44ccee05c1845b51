"""catalogue: what emulated nodes know."""

from enum import StrEnum
from typing import Annotated

import typer

from hopyard.actions import completion
from hopyard.commands.options import AsJson, filled
from hopyard.show.terminal import put, show_json


class Kind(StrEnum):
    MODELS = "models"
    DATASETS = "datasets"
    GPUS = "gpus"
    SERVERS = "servers"
    MIXES = "mixes"
    MEASURED = "measured"


def catalogue(
    kind: Annotated[
        Kind | None, typer.Argument(metavar="KIND", help=f"One of {', '.join(Kind)}. Default: all.")
    ] = None,
    *,
    scenario: Annotated[
        str | None,
        typer.Option(
            "--scenario",
            metavar="NAME|FILE",
            callback=filled,
            help="Add the entries of this scenario.",
            autocompletion=completion.scenarios,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the models, data sets, GPUs, servers and mixes of the emulated world.

    A mix says which models the jobs of a scenario are drawn from.

    measured compares our speeds on one GPU with published measurements: the ratio
    of ours to theirs, the factor by which ours are off, and that factor over the
    measurements that nothing was fitted to (held).

    Emulated nodes train these models and no others; a job of another model is
    refused when it is submitted. Your own entries are listed too: those of a
    scenario, and those of the file that the setting catalogue names. --json has
    every figure with its source.

    $ hopyard catalogue models
    $ hopyard catalogue gpus --json
    $ hopyard catalogue measured
    $ hopyard catalogue --scenario mine.yaml
    """
    from hopyard.actions.scenario import chosen_catalogue  # noqa: PLC0415 - brings numpy
    from hopyard.show.catalogue import catalogue_tables  # noqa: PLC0415 - brings the catalogue
    from loadgen.catalogue.measured import compared  # noqa: PLC0415 - as above
    from loadgen.catalogue.specs import catalogue_with  # noqa: PLC0415 - as above

    known = catalogue_with(chosen_catalogue(scenario))
    found = {
        Kind.MODELS: list(known.models.values()),
        Kind.DATASETS: known.datasets,
        Kind.GPUS: known.gpus,
        Kind.SERVERS: known.servers,
        Kind.MIXES: known.mixes,
        Kind.MEASURED: compared(known),
    }
    kinds = list(Kind) if kind is None else [kind]
    if as_json:
        show_json({each: found[each] for each in kinds})
        return
    tables = catalogue_tables(known)
    for number, each in enumerate(kinds):
        if number:
            put("")
        put(tables[each])


def register(app: typer.Typer) -> None:
    app.command("catalogue")(catalogue)
