"""replay."""

from typing import Annotated

import typer

from hopyard.commands.options import Api, AsJson, Columns, Out, Scenario, Seed, Trace, filled
from hopyard.failures import Failure, Interrupted
from hopyard.show.tables import facts_table
from hopyard.show.terminal import say, say_who_is_cut, show
from hopyard.show.units import duration


def replay(
    *,
    scenario: Scenario = "hops-64",
    trace: Trace = None,
    columns: Columns = None,
    seed: Seed = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until every job has ended.")] = False,
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            callback=filled,
            help="Idempotency key: no job is submitted twice under the same key.",
            metavar="TEXT",
            show_default=False,
        ),
    ] = None,
    first: Annotated[
        int,
        typer.Option("--from", min=1, help="Begin at the job of this number, to go on with a replay."),
    ] = 1,
    api: Api = None,
    as_json: AsJson = False,
    out: Out = None,
) -> None:
    """Submit a scenario's jobs to a running stack, each at its time by the stack's clock.

    Cluster and settings of the scenario are ignored. Each job is a line on
    stderr. Exit code 1 if a job was refused or, with --wait, did not complete.
    If the API is away for ten minutes, the command ends, and its error says how
    to go on.

    $ hopyard up --scenario tiny --speed 60
    $ hopyard replay --scenario tiny --wait
    $ hopyard replay --trace arrivals.csv --api http://head-node:8080 --json
    """
    from hopyard.actions.replay import ReplaySpec, run_replay  # noqa: PLC0415 - brings aiohttp
    from hopyard.actions.scenario import chosen_scenario, valid  # noqa: PLC0415 - brings numpy
    from hopyard.local.signals import run_until_stopped  # noqa: PLC0415 - brings asyncio
    from loadgen.results import cut_jobs  # noqa: PLC0415 - as above
    from loadgen.scenarios import arrivals  # noqa: PLC0415 - as above

    chosen = chosen_scenario(scenario, trace, columns, say)
    found = valid(lambda: arrivals(chosen, seed=seed))
    say_who_is_cut(cut_jobs(found))
    spec = ReplaySpec(
        api=api,
        arrivals=found,
        wait=wait,
        key=key,
        first=first,
    )
    done = run_until_stopped(run_replay(spec, say))
    if done is None:
        raise Interrupted("interrupted")
    ended = {state: str(count) for state, count in done.ended.items()}
    counts = {"submitted": str(done.submitted), "refused": str(done.refused)}
    show(done, facts_table(counts | ended | {"took": duration(done.wall_s)}), as_json=as_json, out=out)
    if done.refused:
        raise Failure(f"{done.refused} of {done.submitted + done.refused} jobs were refused")
    if wait and done.ended.get("completed", 0) != done.submitted:
        raise Failure("not every job completed")


def register(app: typer.Typer) -> None:
    app.command("replay")(replay)
