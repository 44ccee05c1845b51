"""backup and restore of a whole stack."""

from pathlib import Path
from typing import Annotated

import typer

from hopyard.commands.options import Api, AsJson, writable
from hopyard.show.tables import facts_table
from hopyard.show.terminal import show
from hopyard.show.units import memory


def backup(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", dir_okay=False, callback=writable, help="Written anew, for its owner alone."
        ),
    ],
    *,
    api: Api = None,
    as_json: AsJson = False,
) -> None:
    """Write a whole stack into one file, while it runs.

    Facts and their archive, snapshots, cursors and claims, what the estimator knows, the
    cluster, the settings that somebody chose, users' tokens as digests.
    Neither a token nor a password that opens anything is in it, and no
    checkpoint of a job: back up `jobs_folder` as you do other data.

    $ hopyard backup lab-monday.tar
    """
    from hopyard.actions.backup import BesideNats, back_up  # noqa: PLC0415 - brings NATS
    from hopyard.api.ask import over_nats  # noqa: PLC0415 - as above
    from hopyard.api.connect import api_url, call  # noqa: PLC0415 - as above
    from hopyard.commands.about import versions  # noqa: PLC0415 - as above
    from hopyard.local.stacks import folder_of_api  # noqa: PLC0415 - as above

    url = api_url(api)
    settings = call(url, lambda client: client.settings())
    stack = BesideNats(data=folder_of_api(url), settings=settings, version=versions()["hopyard"])
    done = over_nats(lambda connection: back_up(connection, file, stack), url)
    table = facts_table(
        {
            "file": f"{done.file}, {memory(done.bytes)}",
            "facts": f"{done.facts}, up to {done.last_seq}",
            "estimator": f"{done.store_lines} lines",
            "archive": f"{done.archived} files",
            "not in it": done.left_out,
        }
    )
    show(done, table, as_json=as_json)


def restore(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="Of `hopyard backup`.")
    ],
    *,
    data: Annotated[
        Path, typer.Option("--data", metavar="DIR", file_okay=False, help="A folder that is not there yet.")
    ] = Path(".hopyard"),
    as_json: AsJson = False,
) -> None:
    """Make the data folder of a stack anew from a backup, on this or another machine.

    The file is looked through before anything is written, and the folder
    is there whole or not at all. Prints the command by which the stack goes
    on. The stack of the backup must not run any more: two of them would
    have the same jobs. Agents of other machines are admitted again.

    $ hopyard restore lab-monday.tar --data /var/lib/hopyard
    """
    from hopyard.actions.restore import restore as restored  # noqa: PLC0415 - brings NATS and DuckDB

    done = restored(file, data)
    table = facts_table(
        {
            "folder": f"{done.data}, of cluster {done.cluster}",
            "facts": f"{done.facts}, up to {done.last_seq}",
            "estimator": f"{done.store_lines} lines",
            "archive": f"{done.archived} files",
            "NATS": f"one server, where the stack had {done.nats_servers}" if done.nats_servers > 1 else "",
            "not in it": done.left_out,
            "goes on with": done.start,
        }
    )
    show(done, table, as_json=as_json)


def register(app: typer.Typer) -> None:
    app.command("backup")(backup)
    app.command("restore")(restore)
