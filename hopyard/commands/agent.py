"""agent."""

from pathlib import Path
from typing import Annotated

import typer

from hopyard.commands.options import filled, gpus_of
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
            callback=gpus_of,
            help="Use these in place of the driver's list; cpu:4 is four CPU slots.",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--name", metavar="NODE", callback=filled, help="Id of the node. Default: the host name."
        ),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            "--address",
            metavar="HOST",
            help="Address for other nodes. Default: the one that NATS is reached from.",
        ),
    ] = None,
    node_file: Annotated[
        Path | None,
        typer.Option(
            "--node-file",
            metavar="FILE",
            dir_okay=False,
            help="Description of the node, as `hopyard node discover` writes it.",
        ),
    ] = None,
    credentials: Annotated[
        Path | None,
        typer.Option(
            "--credentials", metavar="FILE", dir_okay=False, help="Credentials from `hopyard node admit`."
        ),
    ] = None,
) -> None:
    """Run a stack's jobs on this machine, until Ctrl-C or SIGTERM.

    NVIDIA's driver lists the GPUs; those that other programs use are left alone.
    On a machine without GPUs, slots of the CPU can stand for them. --credentials
    is the file that `hopyard node admit` wrote where the stack runs; your own
    stack on this machine needs none. Other settings are read from
    HOPYARD_SETTINGS. If the stack is not up yet, the agent waits for it.

    $ hopyard agent --join nats://head:4222 --credentials /etc/hopyard/nats.json
    $ hopyard agent --join nats://127.0.0.1:4222 --gpus cpu:4 --name laptop
    $ hopyard agent --join nats://head:4222 --node-file /etc/hopyard/node.yaml
    """
    if node_file and (gpus or name or address):
        raise Invalid("--node-file has the GPUs, name and address: leave out --gpus, --name and --address")
    from hopyard.actions.join import join as become  # noqa: PLC0415 - brings NATS

    file = str(node_file.absolute()) if node_file else None
    account = str(credentials.absolute()) if credentials else None
    given = {"nats_url": join, "gpus": gpus, "node": name, "address": address, "node_file": file}
    given["nats_credentials"] = account
    become({setting: value for setting, value in given.items() if value is not None}, say)


def register(app: typer.Typer) -> None:
    app.command("agent")(agent)
