"""policy show, policy set, policy list."""

from typing import Annotated

import typer
from rich.text import Text

from hopyard.actions import completion
from hopyard.api.client import ApiRefusal
from hopyard.api.connect import call
from hopyard.commands.changing import change
from hopyard.commands.options import Api, AsJson, located
from hopyard.failures import Failure, Invalid, Unreachable
from hopyard.show.tables import options_table, policies_table
from hopyard.show.terminal import put, say, show, show_json
from schemas.views import PolicyChoice

policy = typer.Typer(help="Show or change the scheduling policy of a running stack.")


@policy.callback(invoke_without_command=True)
def show_by_default(context: typer.Context, *, api: Api = None, as_json: AsJson = False) -> None:
    """Show or change the scheduling policy of a running stack."""
    if context.invoked_subcommand is None:
        chosen(api=api, as_json=as_json)


@policy.command("show")
def chosen(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="Print the options of this policy instead.",
            autocompletion=completion.policies,
        ),
    ] = None,
    *,
    api: Api = None,
    as_json: AsJson = False,
) -> None:
    """Show the policy that was chosen, and the one that makes the plans if it is another.

    With a name: the options of that policy, as it is installed here.

    $ hopyard policy
    $ hopyard policy show --json
    $ hopyard policy show hops
    """
    if name is not None:
        _show_options(located(name), as_json=as_json)
        return
    from hopyard.actions.diagnose import planned_by  # noqa: PLC0415 - brings the audit

    found = call(api, planned_by)
    show(found.asked, Text(found.text), as_json=as_json)


def _show_options(name: str, *, as_json: bool) -> None:
    from hopyard.actions.scenario import check_policy  # noqa: PLC0415 - brings numpy
    from services.planner.policies.options import described  # noqa: PLC0415 - as above
    from services.planner.policies.registry import UnfitPolicy, options_kind  # noqa: PLC0415 - as above

    try:
        options = described(options_kind(name))
    except UnfitPolicy as error:
        raise Invalid(str(error)) from None
    check_policy(name)
    if as_json:
        show_json(options)
    elif options:
        put(options_table(options))
    else:
        say(f"{name} has no options")


@policy.command("set")
def choose(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME[+OPTION=VALUE…]",
            help="A name that `hopyard policy list` shows.",
            autocompletion=completion.policies,
        ),
    ],
    *,
    api: Api = None,
    as_json: AsJson = False,
) -> None:
    """Choose the policy that makes the next plans. Running jobs run on.

    The stack refuses a policy that it does not have, and options that the
    policy does not take.

    $ hopyard policy set fifo
    $ hopyard policy set hops+moving_cost_s=15
    """
    name = located(name)
    try:
        choice = change(api, lambda client: client.set_policy(PolicyChoice(policy=name)))
    except ApiRefusal as refusal:  # the field is that of a body which the user never saw
        raise Failure(refusal.problem.detail) from None
    show(choice, Text(choice.policy), as_json=as_json)


@policy.command("list")
def choices(*, api: Api = None, as_json: AsJson = False) -> None:
    """List the policies that the stack accepts, with what each does; without a stack, those installed here.

    $ hopyard policy list
    $ hopyard policy list --json | jq -r '.[].name'
    """
    from services.planner.policies.registry import about  # noqa: PLC0415 - brings numpy
    from shared.runtime.plugins import POLICIES  # noqa: PLC0415 - costs --help nothing so

    try:
        found = call(api, lambda client: client.policies()).policies
    except Unreachable as error:
        say(f"{error}; installed here are:")
        found = POLICIES.names()
    policies = [{"name": name, "about": about(name) if name in POLICIES.names() else ""} for name in found]
    if as_json:
        show_json(policies)
    else:
        put(policies_table(policies))


def register(app: typer.Typer) -> None:
    app.add_typer(policy, name="policy")
