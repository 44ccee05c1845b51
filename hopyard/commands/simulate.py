"""simulate, scenarios: runs in virtual time, and what there is to run."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from hopyard.commands.options import (
    AsJson,
    Columns,
    Out,
    PoliciesAt,
    Policy,
    Scenario,
    Seed,
    Trace,
    apart,
    changes,
    folder_path,
    writable,
)
from hopyard.failures import Failure
from hopyard.show.tables import scenarios_table
from hopyard.show.terminal import NAMED, complain_of, say, show, show_result
from hopyard.show.ticker import Ticker
from hopyard.show.units import duration
from schemas.problems import NOT_SAVED
from schemas.results import RunResult
from schemas.scenarios import ScenarioFile
from schemas.settings import Settings
from shared.runtime.disk import check_folder, make_folder
from shared.runtime.outputs import opened

if TYPE_CHECKING:
    from loadgen.progress import Progress, Watch
    from shared.domain.audit import Audit
    from shared.runtime.bus.contract import Record
    from shared.runtime.process.logs import Line

DECIDED = {"seed": "--seed"}
"""settings that an option decides"""


def simulate(
    *,
    scenario: Scenario = "hops-64",
    policy: Policy = None,
    policies_at: PoliciesAt = None,
    seed: Seed = None,
    trace: Trace = None,
    columns: Columns = None,
    as_json: AsJson = False,
    out: Out = None,
    events_file: Annotated[
        Path | None,
        typer.Option(
            "--events",
            dir_okay=False,
            callback=writable,
            help="Write the event log to this file, one JSON document a line.",
        ),
    ] = None,
    audited: Annotated[
        bool,
        typer.Option(
            "--audit/--no-audit",
            help="Check the event log against the rules of the system.",
        ),
    ] = True,
    dump_problems: Annotated[
        Path | None,
        typer.Option(
            "--dump-problems",
            metavar="DIR",
            parser=folder_path,
            callback=apart,
            help="Save the problem of every plan in this folder, which has none yet.",
        ),
    ] = None,
) -> None:
    """Simulate a workload in virtual time: hours in seconds, the same result every time on one machine.

    The services decide as they do in a running stack. Exit code 1 if a job was
    refused, or if the event log breaks a rule of the system.

    $ hopyard simulate --scenario hops-64 --policy hops --seed 1
    $ hopyard simulate --policy fifo --out fifo.json --events fifo.ndjson
    $ hopyard simulate --scenario tiny --policy-at 600:jps --policy-at 1200:hadar
    """
    from hopyard.actions.scenario import (  # noqa: PLC0415 - brings numpy
        check_policy,
        chosen_scenario,
        simulated_scenario,
    )
    from shared.domain.audit import Audit  # noqa: PLC0415 - brings numpy
    from shared.runtime.process.logs import configure_logs  # noqa: PLC0415 - as above

    unsaved: list[str] = []

    def hear(line: "Line") -> None:
        if line["event"] == NOT_SAVED:
            unsaved.append(line["reason"])

    configure_logs(Settings(log_level="warning", log_format="console"), hear=hear)
    check_policy(policy)
    decided = DECIDED if policy is None else DECIDED | {"policy": "--policy"}
    chosen = simulated_scenario(chosen_scenario(scenario, trace, columns, say), say, decided).scenario
    chosen = msgspec.structs.replace(chosen, policies=[*chosen.policies, *changes(policies_at or ())])
    for change in chosen.policies:
        check_policy(change.policy)
    if dump_problems is not None:
        settings = chosen.settings | {"dump_problems": str(dump_problems.absolute())}
        chosen = msgspec.structs.replace(chosen, settings=settings)
        _check_takes_problems(dump_problems)
    audit = Audit() if audited else None
    result = _streamed(chosen, policy, seed, events_file, audit)
    show_result(result, as_json=as_json, out=out)
    _say_who_waits(result)
    if audit is not None:
        complain_of(audit.found(drained=not result.waiting))
    _complain_of_refused(result)
    if unsaved:
        raise Failure(f"{dump_problems} lacks problems: {unsaved[0]}")


def _check_takes_problems(folder: Path) -> None:
    """Make the folder. Raises Failure if it takes no file, or has problems, which nothing would tell apart.

    The run itself goes on where problems cannot be saved.
    """
    try:
        make_folder(folder)
        check_folder(folder)
    except OSError as error:
        raise Failure(f"{folder}: {error.strerror or error}") from None
    if any(folder.glob("*.json.gz")):
        raise Failure(f"{folder} has the problems of another run: delete them, or name another folder")


def _say_who_waits(result: RunResult) -> None:
    if result.waiting:
        some = ", ".join(result.waiting[:NAMED]) + (" …" if len(result.waiting) > NAMED else "")
        say(f"{result.policy} never places {len(result.waiting)} of the jobs: {some}")


def _complain_of_refused(result: RunResult) -> None:
    """Raises Failure if jobs were refused: the figures are not about the whole workload."""
    if not result.refused:
        return
    total = result.jobs["submitted"] + len(result.refused)
    for job in result.refused[:NAMED]:
        say(f"{duration(job.at_s):>8}  {job.number}/{total}  {job.name}  refused: {job.reason}")
    if len(result.refused) > NAMED:
        say(f"{'…':>8}  {len(result.refused) - NAMED} more")
    raise Failure(f"{len(result.refused)} of {total} jobs were refused; figures are about the others")


def _streamed(
    chosen: ScenarioFile,
    policy: str | None,
    seed: int | None,
    events_file: Path | None,
    audit: "Audit | None",
) -> RunResult:
    """Each fact goes to the file and the audit when it is published; none is kept in memory.

    Raises Failure for a simulation without end.
    """
    from loadgen.simulation import simulate_streaming  # noqa: PLC0415 - brings every service
    from loadgen.stack import Endless  # noqa: PLC0415 - as above

    encode = msgspec.json.Encoder().encode
    with contextlib.ExitStack() as entered:
        watch = entered.enter_context(_watched())
        file = None if events_file is None else entered.enter_context(opened(events_file))

        def hear(record: "Record") -> None:
            if file is not None:
                file.writelines((encode(record.event), b"\n"))
            if audit is not None:
                audit.take(record.seq, record.event)

        try:
            return simulate_streaming(chosen, hear, policy=policy, seed=seed, watch=watch)
        except Endless as error:
            endless = Failure(str(error))
    raise endless  # not before: its log is whole, and of use


@contextlib.contextmanager
def _watched() -> Iterator["Watch"]:
    """Shows how far a simulation has come."""
    ticker = Ticker()

    def watch(now: "Progress") -> None:
        ticker.show(f"{now.ended} of {now.total} jobs ended, {duration(now.at)} of cluster time", now.share)

    try:
        yield watch
    finally:
        ticker.clear()


def scenarios(*, as_json: AsJson = False, out: Out = None) -> None:
    """List the scenarios that ship with hopyard.

    $ hopyard scenarios
    """
    from loadgen.scenarios import load_scenario, scenario_names  # noqa: PLC0415 - brings yaml

    found = [load_scenario(name) for name in scenario_names()]
    show(found, scenarios_table(found), as_json=as_json, out=out)


def register(app: typer.Typer) -> None:
    app.command("simulate")(simulate)
    app.command("scenarios")(scenarios)
