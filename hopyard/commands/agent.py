"""agent."""

from pathlib import Path
from typing import Annotated

import typer

from hopyard.failures import Invalid
from hopyard.show.terminal import say


def agent(
    *,
    join: Annotated[
        str | None,
        typer.Option("--join", metavar="nats://HOST:PORT", help="NATS of the stack. Default: your own."),
    ] = None,
    gpus: Annotated[
        str | None,
        typer.Option(
            "--gpus",
            metavar="TYPE:COUNT",
            help="Instead of what the driver names; cpu:4: slots of the CPU.",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NODE", help="Id of the node. Default: the host's name.")
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            "--address", metavar="HOST", help="At which other nodes reach it. Default: as it reaches NATS."
        ),
    ] = None,
    node_file: Annotated[
        Path | None,
        typer.Option(
            "--node-file",
            metavar="FILE",
            dir_okay=False,
            help="All of it, as `hopyard node discover` writes it.",
        ),
    ] = None,
    credentials: Annotated[
        Path | None,
        typer.Option(
            "--credentials", metavar="FILE", dir_okay=False, help="By which NATS lets this node in."
        ),
    ] = None,
) -> None:
    """Have this machine run jobs of a stack, until Ctrl-C or SIGTERM.

    Its GPUs are found by NVIDIA's driver; those that others use are left alone.
    A machine without GPUs can stand in with slots of its CPU. --credentials is
    the file that `hopyard node admit` has made where the stack runs; a stack of
    your own on this machine needs none. Other settings are read from
    HOPYARD_SETTINGS. Waits for a stack that is not there yet.

    $ hopyard agent --join nats://head:4222 --credentials /etc/hopyard/nats.json
    $ hopyard agent --join nats://127.0.0.1:4222 --gpus cpu:4 --name laptop
    $ hopyard agent --join nats://head:4222 --node-file /etc/hopyard/node.yaml
    """
    if node_file and (gpus or name or address):
        raise Invalid("--node-file says it all: it goes without --gpus, --name and --address")
    from hopyard.actions.join import join as become  # noqa: PLC0415 - brings NATS

    file = str(node_file.absolute()) if node_file else None
    account = str(credentials.absolute()) if credentials else None
    given = {"nats_url": join, "gpus": gpus, "node": name, "address": address, "node_file": file}
    given["nats_credentials"] = account
    become({setting: value for setting, value in given.items() if value is not None}, say)


def register(app: typer.Typer) -> None:
    app.command("agent")(agent)
