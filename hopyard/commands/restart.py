"""restart of the processes of a stack on this machine."""

from pathlib import Path
from typing import Annotated

import typer

from hopyard.commands.options import AsJson, OwnData, named
from hopyard.failures import Unreachable
from hopyard.show.terminal import put_line, say, show_json


def restart(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SERVICE",
            help="As `planner`, or `planner-2` for one instance. Default: all, and the agents.",
        ),
    ] = None,
    *,
    data: OwnData = None,
    as_json: AsJson = False,
) -> None:
    """Restart processes of a running stack, one after the other.

    Each shuts down cleanly, and `hopyard up` starts it again with the code
    that is installed then: after an upgrade, the new version. One that has not
    ended after a minute is killed. The next one is restarted when the one
    before is ready; admission is the last. `hopyard up` itself and NATS are not
    restarted. Jobs train on, except those of an agent that is restarted: they
    are queued, and resume from a checkpoint.

    $ hopyard restart
    $ hopyard restart planner placer --data /var/lib/hopyard
    """
    from hopyard.actions.restart import restart as restarted  # noqa: PLC0415 - brings the settings
    from hopyard.actions.restart import running_on  # noqa: PLC0415 - as above
    from hopyard.local.stacks import BY_DATA, my_folder, my_stack  # noqa: PLC0415 - as above

    for name in names or ():
        named(name)
    folder = data or my_folder(Path.cwd(), instead=BY_DATA)
    try:
        running_on(folder)
    except Unreachable:
        if data is None:
            my_stack(Path.cwd(), instead=BY_DATA)  # its error names a stack that runs elsewhere
        raise
    say(f"the stack on {folder}")
    done = []
    for one in restarted(folder, names or ()):
        done.append(one)
        if not as_json:
            how = "; it had not ended by itself and was killed" if one.killed else ""
            put_line(f"{one.name} ready after {one.took_s:.1f} s{how}")
    if as_json:
        show_json(done)


def register(app: typer.Typer) -> None:
    app.command("restart")(restart)
