"""policy show, policy set, policy list."""

from typing import Annotated

import typer

from hopyard.connect import call
from hopyard.options import Api, AsJson
from hopyard.terminal import console, show_json
from schemas.views import PolicyChoice

policy = typer.Typer(help="Show or change the scheduling policy of a running stack.")


@policy.callback(invoke_without_command=True)
def show_by_default(context: typer.Context, *, api: Api = None, as_json: AsJson = False) -> None:
    """Show or change the scheduling policy of a running stack."""
    if context.invoked_subcommand is None:
        show(api=api, as_json=as_json)


@policy.command()
def show(*, api: Api = None, as_json: AsJson = False) -> None:
    """Show the policy that makes the plans.

    $ hopyard policy
    $ hopyard policy show --json
    """
    _tell(call(api, lambda client: client.policy()), as_json=as_json)


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

    $ hopyard policy set fifo
    """
    _tell(call(api, lambda client: client.set_policy(PolicyChoice(policy=name))), as_json=as_json)


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


def _tell(choice: PolicyChoice, *, as_json: bool) -> None:
    if as_json:
        show_json(choice)
    else:
        console().print(choice.policy)


def register(app: typer.Typer) -> None:
    app.add_typer(policy, name="policy")
