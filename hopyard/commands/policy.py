"""policy show, policy set, policy list."""

from typing import Annotated

import typer
from rich.text import Text

from hopyard.connect import call
from hopyard.options import Api, AsJson
from hopyard.terminal import console, show, show_json
from schemas.views import PolicyChoice

policy = typer.Typer(help="Show or change the scheduling policy of a running stack.")


@policy.callback(invoke_without_command=True)
def show_by_default(context: typer.Context, *, api: Api = None, as_json: AsJson = False) -> None:
    """Show or change the scheduling policy of a running stack."""
    if context.invoked_subcommand is None:
        chosen(api=api, as_json=as_json)


@policy.command("show")
def chosen(*, api: Api = None, as_json: AsJson = False) -> None:
    """Show the policy that was asked for, and the one that makes the plans where that is another.

    $ hopyard policy
    $ hopyard policy show --json
    """
    from hopyard.diagnosis import planned_by  # noqa: PLC0415 - brings the audit

    found = call(api, planned_by)
    show(found.asked, Text(found.told), as_json=as_json)


@policy.command("set")
def choose(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="One that `policy list` names, or module:attribute.")
    ],
    *,
    api: Api = None,
    as_json: AsJson = False,
) -> None:
    """Have the next plan made by another policy. What runs goes on running.

    Only the planner can tell whether it has a module:attribute; where it has
    not, the policy before goes on, and `diag` and `policy show` say so.

    $ hopyard policy set fifo
    """
    choice = call(api, lambda client: client.set_policy(PolicyChoice(policy=name)))
    show(choice, Text(choice.policy), as_json=as_json)


@policy.command("list")
def installed(*, as_json: AsJson = False) -> None:
    """List the policies that are installed here.

    $ hopyard policy list
    """
    from services.planner.registry import names  # noqa: PLC0415 - brings numpy

    if as_json:
        show_json(names())
    else:
        console().print("\n".join(names()))


def register(app: typer.Typer) -> None:
    app.add_typer(policy, name="policy")
