"""simulate, scenarios: runs in virtual time, and what there is to run."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from hopyard.options import AsJson, JsonFile, Policy, Scenario, Seed, Trace, writable
from hopyard.tables import scenarios_table
from hopyard.terminal import complain_of, console, show_json, show_result, write_lines
from schemas.settings import Settings


def simulate(
    *,
    scenario: Scenario = "hops-64",
    policy: Policy = None,
    seed: Seed = 1,
    trace: Trace = None,
    json_file: JsonFile = None,
    events_file: Annotated[
        Path | None,
        typer.Option(
            "--events",
            dir_okay=False,
            callback=writable,
            help="Write the event log here, a JSON document a line.",
        ),
    ] = None,
    dump_problems: Annotated[
        Path | None,
        typer.Option("--dump-problems", file_okay=False, help="Save every plan's problem in this folder."),
    ] = None,
) -> None:
    """Run a workload through the services in virtual time: hours in seconds, the same twice.

    $ hopyard simulate --scenario hops-64 --policy hops --seed 1
    $ hopyard simulate --scenario hops-64 --policy fifo --json fifo.json --events fifo.ndjson
    """
    from hopyard.scenario import check_policy, chosen_scenario  # noqa: PLC0415 - brings numpy
    from loadgen.simulation import simulate as run  # noqa: PLC0415 - brings every service
    from shared.domain.audit import audit  # noqa: PLC0415 - as above
    from shared.runtime.logs import configure_logs  # noqa: PLC0415 - as above

    configure_logs(Settings(log_level="warning", log_format="console"))
    check_policy(policy)
    chosen = chosen_scenario(scenario, trace)
    if dump_problems is not None:
        settings = chosen.settings | {"dump_problems": str(dump_problems.absolute())}
        chosen = msgspec.structs.replace(chosen, settings=settings)
    simulated = run(chosen, policy=policy, seed=seed)
    if events_file is not None:
        write_lines(events_file, map(msgspec.json.encode, simulated.events))
    show_result(simulated.result, json_file)
    complain_of(audit(simulated.events, drained=True, seqs=simulated.seqs))


def scenarios(*, as_json: AsJson = False) -> None:
    """List the scenarios that ship with hopyard.

    $ hopyard scenarios
    """
    from loadgen.scenarios import load_scenario, scenario_names  # noqa: PLC0415 - brings numpy

    found = [load_scenario(name) for name in scenario_names()]
    if as_json:
        show_json(found)
    else:
        console().print(scenarios_table(found))


def register(app: typer.Typer) -> None:
    app.command("simulate")(simulate)
    app.command("scenarios")(scenarios)
