"""slurm up, slurm status, slurm down."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hopyard.commands.options import AsJson, Out, folder_path
from hopyard.failures import Invalid
from hopyard.show.columns import Column, Listing
from hopyard.show.terminal import say, show, show_json
from hopyard.show.times import UNIX, Times
from hopyard.show.units import plural

if TYPE_CHECKING:
    from hopyard.actions.slurm.queue import SlurmJob


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise Invalid(f"--name {text!r}: a name begins with a letter, digit or _, and may go on with . or -")
    return text


_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
slurm = typer.Typer(
    help="Run the agents of a stack as jobs of a Slurm cluster, one a node.", no_args_is_help=True
)
Called = Annotated[
    str,
    typer.Option(
        "--name",
        metavar="NAME",
        callback=_name,
        help="Name of the Slurm jobs; a second stack needs another, or another folder.",
    ),
]
Where = Annotated[
    Path | None,
    typer.Option(
        "--folder",
        metavar="DIR",
        parser=folder_path,
        help="Folder of script, settings and logs, on a file system that all nodes share. "
        "It says which Slurm jobs are meant: those with its script.",
        show_default="~/.local/state/hopyard/slurm/NAME",
    ),
]
OWN = "hopyard"


@slurm.command()
def up(
    *,
    partition: Annotated[
        str,
        typer.Option(
            "--partition", "-p", metavar="P", envvar="SBATCH_PARTITION", help="Partition of the nodes."
        ),
    ],
    nodes: Annotated[int, typer.Option("--nodes", "-N", min=1, max=10_000, help="How many agents.")],
    time: Annotated[
        str,
        typer.Option(
            "--time",
            "-t",
            metavar="TIME",
            envvar="SBATCH_TIMELIMIT",
            help="Time limit of a job, as sbatch writes it.",
            show_default="the partition's",
        ),
    ] = "",
    account: Annotated[
        str,
        typer.Option(
            "--account", "-A", metavar="NAME", envvar="SBATCH_ACCOUNT", help="Account that is charged."
        ),
    ] = "",
    gres: Annotated[
        str,
        typer.Option(
            "--gres", metavar="LIST", envvar="SBATCH_GRES", help="What each node must have, as gpu:a100:8."
        ),
    ] = "",
    constraint: Annotated[
        str,
        typer.Option(
            "--constraint",
            "-C",
            metavar="FEATURES",
            envvar="SBATCH_CONSTRAINT",
            help="Features that each node must have.",
        ),
    ] = "",
    join: Annotated[
        str | None,
        typer.Option(
            "--join",
            metavar="URL",
            help="NATS of the stack, as the nodes reach it.",
            show_default="the setting nats_url",
        ),
    ] = None,
    name: Called = OWN,
    folder: Where = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the batch script, and submit nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Have agents on N nodes: submit as many jobs as are missing, each for a whole node.

    Each job submits its successor before its time ends, until `slurm down`.
    What no option says is set by sbatch's variables, as SBATCH_QOS.

    $ hopyard slurm up --partition gpu --nodes 4 --time 1-00:00:00
    $ hopyard slurm up -p gpu -N 4 --gres gpu:a100:8 --dry-run
    """
    from hopyard.actions.slurm.agents import bring, folder_of, script_of  # noqa: PLC0415 - brings YAML
    from hopyard.actions.slurm.script import Allocation  # noqa: PLC0415 - as above

    where = (folder or folder_of(name)).absolute()
    wanted = Allocation(
        name=name, partition=partition, time=time, account=account, gres=gres, constraint=constraint
    )
    script = script_of(wanted, where)
    if dry_run:
        typer.echo(script, nl=False)
        return
    done = bring(where, nodes=nodes, script=script, join=join, say=say)
    if as_json:
        show_json(done)
        return
    if done.submitted:
        say(f"submitted {', '.join(done.submitted)}; logs in {done.folder}")
    if done.there > nodes:
        say(f"{done.there} agents have their job, more than {nodes}; `hopyard slurm down` ends them all")
    elif not done.submitted:
        say(f"{done.there} agents have their job already")


@slurm.command()
def status(*, name: Called = OWN, folder: Where = None, as_json: AsJson = False, out: Out = None) -> None:
    """List the agents' Slurm jobs, where they run and until when.

    $ hopyard slurm status
    """
    from hopyard.actions.slurm.agents import folder_of, jobs_of  # noqa: PLC0415 - brings YAML

    where = (folder or folder_of(name)).absolute()
    jobs = jobs_of(where)
    if not (jobs or as_json or out):
        say(f"no jobs of {where}")
        return
    show(jobs, _listing(jobs), as_json=as_json, out=out)


@slurm.command()
def down(*, name: Called = OWN, folder: Where = None) -> None:
    """Cancel the agents' Slurm jobs, waiting or running, and wait until they are gone.

    Training jobs save a checkpoint first, and go on where agents are left.

    $ hopyard slurm down
    """
    from hopyard.actions.slurm.agents import folder_of, take_down  # noqa: PLC0415 - brings YAML

    where = (folder or folder_of(name)).absolute()
    ended = take_down(where, say)
    say(f"{plural(ended, 'job')} ended" if ended else f"no jobs of {where}")


def _listing(jobs: "list[SlurmJob]") -> Listing["SlurmJob"]:
    times = Times(UNIX)
    columns: list[Column[SlurmJob]] = [
        Column("job", lambda job: job.job_id),
        Column("state", lambda job: job.state.lower()),
        Column("node", lambda job: job.node),
        Column("until", lambda job: "" if job.until is None else times.column(job.until), spare=2),
        Column("waits for", lambda job: job.reason if job.state == "PENDING" else "", spare=1),
    ]
    return Listing(columns, jobs)


def register(app: typer.Typer) -> None:
    app.add_typer(slurm, name="slurm")
