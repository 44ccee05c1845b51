"""calibrate."""

from collections.abc import Sequence
from typing import Annotated

import typer

from hopyard.api.ask import ask
from hopyard.api.connect import clock_here
from hopyard.commands.options import AsJson, Out
from hopyard.failures import Failure
from hopyard.show.columns import Listing
from hopyard.show.tables import figures_table
from hopyard.show.terminal import say, show
from hopyard.show.times import Times
from hopyard.show.units import number, share
from schemas.calibration import BandwidthRow, Calibration
from schemas.questions import Calibrate

TIMEOUT_S = 600.0
GIGA = 1e9


def calibrate(
    *,
    only_show: Annotated[
        bool, typer.Option("--show", help="Measure nothing; show what was last measured.")
    ] = False,
    as_json: AsJson = False,
    out: Out = None,
) -> None:
    """Measure the bandwidths between GPUs, and estimate with them from then on.

    Four idle nodes of every GPU type, those with the most GPUs, time
    all-reduces of several sizes, alone and then in pairs; from these follow a
    latency and a bandwidth for each shape of gang. The table shows the
    bandwidths of Hops eq. 2. Nodes in use are left out and named: if all of a
    type are, drain one or two, and wait until they are free.

    $ hopyard calibrate
    $ hopyard calibrate --show --json
    """
    found = ask(Calibrate(measure=not only_show), Calibration, TIMEOUT_S)
    times = Times(clock_here())
    if only_show and not (found.rows or as_json or out):
        say("nothing measured yet: predictions are made with the numbers of the cluster file")
    else:
        show(found, calibration_table(found, times), as_json=as_json, out=out, times=times)
    for node_id, reason in sorted(found.left_out.items()):
        say(f"{node_id} did not measure: {reason}")
    if not found.rows and not only_show:
        raise Failure("no node could measure")


def calibration_table(found: Calibration, times: Times) -> Listing[Sequence[str]]:
    columns = ("type", ">link GB/s", ">network GB/s", "measured", ">measurements", ">error")
    return figures_table(columns, [_cells(row, times) for row in found.rows])


def _cells(row: BandwidthRow, times: Times) -> tuple[str, ...]:
    speeds = (number(one / GIGA) if one else "" for one in (row.link, row.network))
    return (row.gpu_type, *speeds, times.short(row.at), str(row.measurements), share(row.error))


def register(app: typer.Typer) -> None:
    app.command("calibrate")(calibrate)
