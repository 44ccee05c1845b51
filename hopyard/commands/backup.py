"""backup and restore of a whole stack."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from hopyard.commands.options import Api, AsJson, folder_path, typed, writable
from hopyard.failures import Invalid
from hopyard.show.tables import facts_table
from hopyard.show.terminal import put_line, say, show
from hopyard.show.units import memory, plural
from shared.domain.quantities import bytes_in
from shared.domain.states import ENDED, JobState

if TYPE_CHECKING:
    from hopyard.actions.checkpoints import WantedCheckpoints
    from schemas.views import SettingsView

ALL_JOBS = 1_000_000


def backup(
    context: typer.Context,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            dir_okay=False,
            callback=writable,
            help="File to write, readable by its owner alone.",
        ),
    ],
    *,
    checkpoints: Annotated[
        bool,
        typer.Option("--checkpoints", help="Include the newest complete checkpoint of each unfinished job."),
    ] = False,
    checkpoints_max: Annotated[
        str,
        typer.Option("--checkpoints-max", metavar="SIZE", help="Stop if checkpoints take more than this."),
    ] = "20GiB",
    api: Api = None,
    as_json: AsJson = False,
) -> None:
    """Write a whole stack into one file, while it runs.

    The file has the facts and their archive, snapshots, cursors and claims,
    what the estimator knows, the cluster, the settings that were changed, and
    digests of users' tokens; no token or password itself. It has checkpoints
    only with --checkpoints, which needs `jobs_folder` to be readable from
    here; without it, back that folder up as you do other data.

    $ hopyard backup lab-monday.tar
    $ hopyard backup lab-monday.tar --checkpoints --checkpoints-max 500GiB
    """
    if not checkpoints and typed(context, "checkpoints_max"):
        raise Invalid("--checkpoints-max needs --checkpoints")
    from hopyard.actions.backup import BesideNats, back_up  # noqa: PLC0415 - brings NATS
    from hopyard.actions.checkpoints import check_room  # noqa: PLC0415 - as above
    from hopyard.api.ask import over_nats  # noqa: PLC0415 - as above
    from hopyard.api.connect import api_url, call  # noqa: PLC0415 - as above
    from hopyard.commands.about import versions  # noqa: PLC0415 - as above
    from hopyard.local.backup_file import place_of  # noqa: PLC0415 - as above
    from hopyard.local.stacks import folder_of_api  # noqa: PLC0415 - as above

    place = place_of(file)
    url = api_url(api)
    settings = call(url, lambda client: client.settings())
    want = _wanted(url, settings, checkpoints_max) if checkpoints else None
    if want is not None:
        say(check_room(want, place))
    stack = BesideNats(
        data=folder_of_api(url), settings=settings, version=versions()["hopyard"], checkpoints=want
    )
    made = over_nats(lambda connection: back_up(connection, place, stack), url)
    done = msgspec.structs.replace(made, file=str(file))
    table = facts_table(
        {
            "file": f"{done.file}, {memory(done.bytes)}",
            "facts": f"{done.facts}, up to {done.last_seq}",
            "estimator": plural(done.store_lines, "line"),
            "archive": plural(done.archived, "file"),
            "damaged in it": ", ".join(done.damaged),
            "checkpoints": f"{done.checkpoints}" if checkpoints else "",
            "not in it": done.left_out,
        }
    )
    show(done, table, as_json=as_json)


def _wanted(url: str, settings: "SettingsView", bytes_max: str) -> "WantedCheckpoints":
    """Raises Invalid."""
    from hopyard.actions.checkpoints import wanted  # noqa: PLC0415 - brings NATS
    from hopyard.api.connect import call  # noqa: PLC0415 - as above

    size = bytes_in(bytes_max)
    if size is None:
        raise Invalid(f"--checkpoints-max {bytes_max}: an amount such as 500MB or 20GiB")
    states = [state for state in JobState if state not in ENDED]
    jobs = call(url, lambda client: client.jobs(states=states, limit=ALL_JOBS)).jobs
    values = {one.name: one.value for one in settings.settings}
    return wanted(str(values.get("jobs_folder", "")), jobs, int(size))


def restore(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="File that `hopyard backup` wrote."),
    ],
    *,
    data: Annotated[
        Path,
        typer.Option(
            "--data", metavar="DIR", parser=folder_path, help="Data folder to make; must not exist yet."
        ),
    ] = Path(".hopyard"),
    checkpoints: Annotated[
        bool,
        typer.Option(
            "--checkpoints/--no-checkpoints",
            help="Also restore the checkpoints, into the folder `jobs`.",
        ),
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Restore a stack's data folder from a backup, on this or another machine.

    The whole file is checked before anything is written, and the folder is
    made complete or not at all. Prints the command that starts the stack. The
    stack that was backed up must not run any more: both would run the same
    jobs. Agents of other machines have to be admitted again.

    $ hopyard restore lab-monday.tar --data /var/lib/hopyard
    """
    from hopyard.actions.restore import restore as restored  # noqa: PLC0415 - brings NATS and DuckDB

    done = restored(file, data, checkpoints=checkpoints)
    table = facts_table(
        {
            "folder": f"{done.data}, of cluster {done.cluster}",
            "facts": f"{done.facts}, up to {done.last_seq}",
            "estimator": plural(done.store_lines, "line"),
            "archive": plural(done.archived, "file"),
            "checkpoints": f"{done.checkpoints}, in {done.data}/jobs" if done.checkpoints else "",
            "NATS": f"one server, where the stack had {done.nats_servers}" if done.nats_servers > 1 else "",
            "not in it": done.left_out,
        }
    )
    show(done, table, as_json=as_json)
    if not as_json:
        put_line(f"it goes on with: {done.start}")


def register(app: typer.Typer) -> None:
    app.command("backup")(backup)
    app.command("restore")(restore)
