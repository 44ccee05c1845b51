"""diag."""

import typer
from rich.console import Group

from hopyard.api.connect import api_url
from hopyard.commands.about import versions
from hopyard.commands.options import Api, AsJson, Out
from hopyard.failures import Failure, Unreachable
from hopyard.local.data_folder import read_stack_file
from hopyard.local.stacks import folder_of_api
from hopyard.show.tables import checks_table, facts_table
from hopyard.show.terminal import show


def diag(*, api: Api = None, as_json: AsJson = False, out: Out = None) -> None:
    """Check whether the stack is well. Changes nothing.

    Checks API, NATS, services (of a stack that `hopyard up` started
    here), nodes and policy, and audits the whole event log.

    $ hopyard diag
    $ hopyard diag --out for-the-bug-report.json
    """
    import asyncio  # noqa: PLC0415 - --help need not wait for it

    from hopyard.actions.diagnose import diagnose  # noqa: PLC0415 - brings aiohttp

    url = api_url(api)
    data = folder_of_api(url)
    stack = None if data is None else read_stack_file(data)
    found = asyncio.run(diagnose(url, stack, versions()))
    checks = checks_table((check.what, check.ok, check.detail) for check in found.checks)
    show(found, Group(checks, facts_table(found.versions)), as_json=as_json, out=out)
    if not found.reachable:
        raise Unreachable(found.checks[0].detail)
    if not found.well():
        raise Failure("the stack is not well")


def register(app: typer.Typer) -> None:
    app.command("diag")(diag)
