"""Completions for the shell: ids of a stack that answers in time, and names. Errors are never shown."""

from collections.abc import Awaitable, Callable, Iterable

import typer

from hopyard.api.client import Client
from hopyard.failures import Failure
from schemas.views import JobSorting
from shared.domain.states import JobState

PATIENCE_S = 1.0
"""longest wait after Tab is pressed"""
JOBS = 100


def jobs(context: typer.Context, incomplete: str) -> list[str]:
    """Ids of the newest jobs, those that have not ended first."""

    async def ids(client: Client) -> list[str]:
        return [job.job_id for job in (await client.jobs(sort=JobSorting.ACTIVE, limit=JOBS)).jobs]

    return _matching(_asked(context, ids), incomplete)


def nodes(context: typer.Context, incomplete: str) -> list[str]:
    async def ids(client: Client) -> list[str]:
        return [view.node.node_id for view in (await client.nodes()).nodes]

    return _matching(_asked(context, ids), incomplete)


def policies(incomplete: str) -> list[str]:
    from shared.runtime.plugins import POLICIES  # noqa: PLC0415 - costs --help nothing so

    return _matching(POLICIES.names(), incomplete)


def scenarios(incomplete: str) -> list[str]:
    """Names that begin with the text; if there is none, the shell completes names of files."""
    from loadgen.scenarios import scenario_names  # noqa: PLC0415 - brings yaml

    return _matching(scenario_names(), incomplete)


def states(incomplete: str) -> list[str]:
    """Completes the last state of a list."""
    before, comma, last = incomplete.rpartition(",")
    return [before + comma + state for state in JobState if state.startswith(last)]


def _asked(context: typer.Context, ask: Callable[[Client], Awaitable[list[str]]]) -> list[str]:
    from hopyard.api.connect import call  # noqa: PLC0415 - only here

    try:
        return call(context.params.get("api"), ask, limit_s=PATIENCE_S)
    except Failure:
        return []


def _matching(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
