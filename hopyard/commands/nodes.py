"""status; nodes; node drain, node restore, node remove, node discover, node admit, node expel."""

import os
from pathlib import Path
from typing import Annotated

import typer

from hopyard.actions import completion
from hopyard.api.client import Client
from hopyard.api.connect import timed
from hopyard.commands.changing import change
from hopyard.commands.options import (
    Api,
    AsJson,
    ListColumns,
    Out,
    OwnData,
    Quiet,
    Watching,
    chosen,
    filled,
    gpus_of,
    named,
    one_or_more,
    writable,
)
from hopyard.failures import Failure, Invalid
from hopyard.local.data_folder import MARKS
from hopyard.local.stacks import BESIDE_IT, my_folder
from hopyard.show.columns import Listing
from hopyard.show.nodes import DEFAULT, node_columns
from hopyard.show.tables import status_table
from hopyard.show.terminal import put_line, say, show, show_ids, show_json
from hopyard.show.times import Times
from schemas.ids import NodeId
from schemas.views import NodeDrain, NodePage, NodeView
from shared.runtime import outputs

NodeArgument = Annotated[
    str,
    typer.Argument(metavar="NODE", callback=named, help="Id of the node.", autocompletion=completion.nodes),
]
STATES = ("alive", "draining", "lost")

node = typer.Typer(
    help="Drain, restore, remove, admit or expel a node; describe this machine as one.", no_args_is_help=True
)


def status(*, api: Api = None, as_json: AsJson = False, out: Out = None) -> None:
    """Show the cluster at a glance: jobs, GPUs, the last plan, how long jobs wait, and every metric.

    $ hopyard status
    $ hopyard status --json | jq .metrics.gru
    """
    view, clock = timed(api, lambda client: client.status())
    times = Times(clock)
    show(view, status_table(view, times), as_json=as_json, out=out, times=times)


def nodes(
    *,
    state: Annotated[
        str | None, typer.Option("--state", metavar="STATE,…", help="Only nodes in these states.")
    ] = None,
    columns: ListColumns = None,
    quiet: Quiet = False,
    watching: Watching = False,
    api: Api = None,
    as_json: AsJson = False,
    out: Out = None,
) -> None:
    """List the nodes, which GPUs are free, and which jobs hold the others.

    States: alive, draining, lost.

    Columns: node, type, server, state, busy, heard, jobs, note, gpus, free, speed (of jobs, relative to the
    same jobs on other nodes with the same GPUs in servers of the same model; empty: too few ran there).

    $ hopyard nodes
    $ hopyard nodes --state draining,lost -q
    $ hopyard nodes -o node,free --watch
    """
    states = one_or_more("--state", state, STATES)
    there = chosen(columns, node_columns(), DEFAULT)

    async def look(client: Client) -> NodePage:
        found = (await client.nodes()).nodes
        return NodePage(nodes=tuple(view for view in found if not states or view.state in states))

    def picture(page: NodePage, _: Times) -> Listing[NodeView]:
        return Listing(there, page.nodes, whole=columns is not None)

    if watching:
        from hopyard.actions.watch import watch  # noqa: PLC0415 - brings an event loop and moving pictures

        watch(api, look, picture, as_json=as_json)
        return
    page, clock = timed(api, look)
    if quiet and not as_json:
        show_ids(view.node.node_id for view in page.nodes)
    elif not (page.nodes or as_json or out):
        say("no nodes")
    else:
        show(page, picture(page, Times(clock)), as_json=as_json, out=out, times=Times(clock))


@node.command()
def drain(node: NodeArgument, *, api: Api = None, as_json: AsJson = False) -> None:
    """Start nothing new on a node; its jobs move to other nodes with the next plan for all jobs.

    That is at the next round, or at once under a policy that plans at events.

    $ hopyard node drain titan-xp-2
    """
    _show(change(api, lambda client: client.drain(NodeId(node))), as_json=as_json)


@node.command()
def restore(node: NodeArgument, *, api: Api = None, as_json: AsJson = False) -> None:
    """End a node's drain.

    $ hopyard node restore titan-xp-2
    """
    _show(change(api, lambda client: client.restore(NodeId(node))), as_json=as_json)


@node.command()
def remove(node: NodeArgument, *, api: Api = None, as_json: AsJson = False) -> None:
    """Forget a lost node that does not come back.

    No list has it any more, and no job is accepted for its GPUs. Once its agent
    is heard again, it is a node like any other, without a drain.

    $ hopyard node remove titan-xp-2
    $ hopyard nodes --state lost -q | xargs -n1 hopyard node remove
    """
    removed = change(api, lambda client: client.remove_node(NodeId(node)))
    if as_json:
        show_json(removed)
    else:
        say(f"node {removed.node_id} is removed")


@node.command()
def discover(
    *,
    gpus: Annotated[
        str | None,
        typer.Option(
            "--gpus",
            metavar="TYPE:COUNT",
            callback=gpus_of,
            help="Use these in place of the driver's list, as v100:8 or cpu:4.",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--name", metavar="NODE", callback=filled, help="Id of the node. Default: the host name."
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", dir_okay=False, callback=writable, help="Write to this file."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Describe this machine as a node: its GPUs, and a guess of the bandwidths between them.

    Check the file, then join with `hopyard agent --node-file FILE`. An existing
    file is not overwritten.

    $ hopyard node discover --out node.yaml
    """
    from hopyard.actions.discover import as_text, discovered  # noqa: PLC0415 - brings the parser of files

    if file and file.exists():
        raise Invalid(f"{file} exists already")
    machine = discovered(gpus, name)
    if machine.left_out:
        say(f"left out: {machine.left_out}; a node has GPUs of one type")
    if file:
        outputs.write(file, as_text(machine.file).encode())
    elif as_json:
        show_json(machine.file)
    else:
        put_line(as_text(machine.file).rstrip())


@node.command()
def admit(
    name: Annotated[
        str | None, typer.Argument(metavar="NODE", callback=named, help="Id that the node will have.")
    ] = None,
    *,
    whichever: Annotated[
        bool, typer.Option("--any", help="For agents of any node, as in Slurm jobs, which share one account.")
    ] = False,
    file: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", dir_okay=False, callback=writable, help="Write to this file."),
    ] = None,
    data: OwnData = None,
) -> None:
    """Admit a node to your stack: print the NATS credentials for its agent.

    With them the agent publishes facts of that node, and of no other. Copy them
    to the node, into a file that only its owner can read, for `hopyard agent
    --credentials`. They are valid once this command ends; asked again, they are the same.

    $ hopyard node admit gpu-1 | ssh gpu-1 'umask 077; cat > hopyard.json'
    $ hopyard node admit --any --out ~/.hopyard-agents.json
    """
    from hopyard.local.accounts import admitted, admitted_any, await_taken  # noqa: PLC0415 - brings the services' table

    if (name is None) != whichever:
        raise Invalid("give either a NODE or --any")
    data = _folder_of_stack(data)
    account = admitted(data, name) if name else admitted_any(data)
    if file:
        outputs.write_secret(file, account.read_bytes())
    else:
        put_line(account.read_text().rstrip())
    await_taken(data)


@node.command()
def expel(node: NodeArgument, *, data: OwnData = None) -> None:
    """Expel a node: its credentials are invalid from now on. What runs there is lost when its lease ends.

    The node is listed as lost until `hopyard node remove` forgets it.

    $ hopyard node expel gpu-1
    """
    from hopyard.local.accounts import await_taken, is_expelled  # noqa: PLC0415 - as above
    from hopyard.local.accounts import expel as forget  # noqa: PLC0415 - as above

    data = _folder_of_stack(data)
    if not forget(data, node) and not is_expelled(data, node):
        raise Failure(f"node {node} was not admitted")
    await_taken(data)
    say(f"node {node} is expelled: NATS refuses its agent from now on")


def _folder_of_stack(named: Path | None) -> Path:
    """Raises Unreachable, Invalid."""
    if named is None:
        return my_folder(Path.cwd(), instead=f"{BESIDE_IT}, or name that by --data")
    if not any((named / mark).exists() for mark in MARKS):
        raise Invalid(f"--data {named}: no stack has run on this folder")
    if named.stat().st_uid != os.geteuid():
        raise Invalid(f"--data {named} is another account's: run this as its user")
    return named


def _show(drained: NodeDrain, *, as_json: bool) -> None:
    if as_json:
        show_json(drained)
    else:
        say(f"node {drained.node_id} {'is draining' if drained.draining else 'takes jobs again'}")


def register(app: typer.Typer) -> None:
    app.command("status")(status)
    app.command("nodes")(nodes)
    app.add_typer(node, name="node")
