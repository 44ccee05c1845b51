"""status; nodes; node drain, node restore."""

from typing import Annotated

import typer

from hopyard.api.connect import call
from hopyard.commands.changing import change
from hopyard.commands.options import Api, AsJson
from hopyard.show.tables import nodes_table, status_table
from hopyard.show.terminal import say, show, show_json
from schemas.ids import NodeId
from schemas.views import NodeDrain

NodeArgument = Annotated[str, typer.Argument(metavar="NODE", help="Id of the node.")]

node = typer.Typer(help="Take one node out of use, or back into it.", no_args_is_help=True)


def status(*, api: Api = None, as_json: AsJson = False) -> None:
    """Show the cluster at a glance: jobs, GPUs, the last plan, how long jobs wait, and every metric.

    $ hopyard status
    $ hopyard status --json | jq .metrics.gru
    """
    view = call(api, lambda client: client.status())
    show(view, status_table(view), as_json=as_json)


def nodes(*, api: Api = None, as_json: AsJson = False) -> None:
    """List the nodes, what is free on them, and who holds the rest.

    $ hopyard nodes
    """
    page = call(api, lambda client: client.nodes())
    show(page, nodes_table(page), as_json=as_json)


@node.command()
def drain(node: NodeArgument, *, api: Api = None, as_json: AsJson = False) -> None:
    """Start nothing new on a node; what runs there leaves it at the next round.

    $ hopyard node drain titan-xp-2
    """
    _show(change(api, lambda client: client.drain(NodeId(node))), as_json=as_json)


@node.command()
def restore(node: NodeArgument, *, api: Api = None, as_json: AsJson = False) -> None:
    """End a node's drain.

    $ hopyard node restore titan-xp-2
    """
    _show(change(api, lambda client: client.restore(NodeId(node))), as_json=as_json)


def _show(drained: NodeDrain, *, as_json: bool) -> None:
    if as_json:
        show_json(drained)
    else:
        say(f"node {drained.node_id} {'is draining' if drained.draining else 'takes jobs again'}")


def register(app: typer.Typer) -> None:
    app.command("status")(status)
    app.command("nodes")(nodes)
    app.add_typer(node, name="node")
