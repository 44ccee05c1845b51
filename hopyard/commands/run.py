"""demo and up: the commands that start a stack on this machine."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hopyard.commands.options import (
    AsJson,
    Columns,
    Out,
    Policy,
    Scenario,
    Seed,
    Speed,
    Trace,
    apart,
    filled,
    folder_path,
    typed,
)
from hopyard.failures import Failure, Interrupted, Invalid
from hopyard.local.data_folder import empty_folder
from hopyard.show.terminal import complain_of, say, show, show_result
from hopyard.show.units import duration
from hopyard.stopping import STOPPED

if TYPE_CHECKING:
    from hopyard.actions.demo import DemoResult


CLUSTERS = (1, 3, 5)
"""allowed numbers of NATS servers"""


OF_A_SCENARIO = ("scenario", "speed", "policy", "seed", "trace", "columns")
"""parameters of `demo` that --real does without"""


def demo(
    context: typer.Context,
    *,
    scenario: Scenario = "hops-64",
    speed: Speed = 300.0,
    policy: Policy = None,
    seed: Seed = None,
    trace: Trace = None,
    columns: Columns = None,
    as_json: AsJson = False,
    out: Out = None,
    keep: Annotated[
        Path | None,
        typer.Option(
            "--keep",
            metavar="DIR",
            parser=folder_path,
            callback=apart,
            help="Keep the logs and the event log in this folder.",
        ),
    ] = None,
    limit: Annotated[
        float, typer.Option("--limit", min=1, help="Give up after this many real seconds.")
    ] = 3600,
    real: Annotated[
        bool, typer.Option("--real", help="Train four small models with PyTorch instead.")
    ] = False,
    python: Annotated[
        Path | None,
        typer.Option(
            "--python",
            metavar="FILE",
            help="With --real: a Python interpreter that has torch.",
            show_default="the environment's, else python3",
        ),
    ] = None,
) -> None:
    """Run a whole workload through a real stack on this machine, faster than real time; print its metrics.

    Starts NATS, the six services and an agent for every node of the scenario;
    needs nothing else. Exit code 1 if a job did not complete, or if the event
    log breaks a rule of the system.

    With --real only the GPUs are emulated, as CPU slots of this machine: four
    models train with PyTorch for a minute and a half. They are measured,
    placed, moved with their checkpoints, and complete.

    $ hopyard demo
    $ hopyard demo --real --python ~/torch/bin/python
    $ hopyard demo --policy fifo --out fifo.json
    $ hopyard demo --scenario my-scenario.yaml --speed 60 --keep run-1
    """
    if python is not None and not real:
        raise Invalid("--python needs --real")
    if real and (useless := typed(context, *OF_A_SCENARIO)):
        raise Invalid(f"--real has jobs and a cluster of its own: leave out {', '.join(useless)}")
    if real:
        _real_demo(python, keep, limit, as_json=as_json, out=out)
        return
    from hopyard.actions.demo import DemoSpec, run_demo  # noqa: PLC0415 - brings what the whole system needs
    from hopyard.actions.scenario import check_policy, chosen_scenario  # noqa: PLC0415 - as above
    from hopyard.local.signals import run_until_stopped  # noqa: PLC0415 - as above
    from hopyard.show.progress import progress  # noqa: PLC0415 - as above
    from loadgen.scenarios import own_seed  # noqa: PLC0415 - as above

    check_policy(policy)
    chosen = chosen_scenario(scenario, trace, columns, say)
    with empty_folder(keep) as data, progress() as show:
        spec = DemoSpec(
            scenario=chosen,
            data=data,
            seed=own_seed(chosen) if seed is None else seed,
            speed=speed,
            policy=policy,
            limit_s=limit,
        )
        done = run_until_stopped(run_demo(spec, show, say))
    if done is None:
        raise Interrupted("interrupted")
    show_result(done.result, as_json=as_json, out=out)
    _judge(done)


def _real_demo(
    python: Path | None, keep: Path | None, limit_s: float, *, as_json: bool, out: Path | None
) -> None:
    from hopyard.actions.real_demo import RealDemoSpec, real_demo_table, run_real_demo  # noqa: PLC0415 - as above
    from hopyard.local.signals import run_until_stopped  # noqa: PLC0415 - as above
    from hopyard.local.torch_python import torch_python  # noqa: PLC0415 - as above

    found = torch_python(python)
    say(f"torch {found.torch} of {found.python}")
    with empty_folder(keep) as data, empty_folder(None) as run:
        spec = RealDemoSpec(data=data.absolute(), run=run, found=found, limit_s=limit_s)
        done = run_until_stopped(run_real_demo(spec, say))
    if done is None:
        raise Interrupted("interrupted")
    show(done, real_demo_table(done), as_json=as_json, out=out)
    complain_of(done.violations)
    if not done.complete():
        raise Failure("not every job completed")
    say(f"{done.facts} facts break no rule; it took {duration(done.took_s)}")


OnlyCluster = Annotated[
    str | None,
    typer.Option(
        "--cluster", metavar="NAME|FILE", callback=filled, help="A cluster alone, with default settings."
    ),
]
Port = Annotated[
    int,
    typer.Option(
        "--port", min=0, max=65535, help="Port of the API; 0: the last one of --data if it is free, else any."
    ),
]
StackData = Annotated[
    Path, typer.Option("--data", metavar="DIR", parser=folder_path, help="Data folder of the stack.")
]
Listening = Annotated[
    str | None,
    typer.Option(
        "--listen",
        metavar="HOST:PORT",
        callback=filled,
        help="No emulated nodes: agents join at this address; 0.0.0.0:4222 is open to all machines.",
    ),
]
InstancesOfEach = Annotated[
    str,
    typer.Option(
        "--instances",
        metavar="N|SERVICE=N,…",
        help="Instances of each service, or of some: one leads, another takes over within seconds.",
    ),
]
ServersOfNats = Annotated[
    int, typer.Option("--nats", min=1, max=5, help="NATS servers: 1, 3 or 5; of three, one may go.")
]


def up(
    context: typer.Context,
    *,
    scenario: Scenario = "hops-64",
    cluster: OnlyCluster = None,
    speed: Speed = 1.0,
    port: Port = 0,
    data: StackData = Path(".hopyard"),
    policy: Policy = None,
    listen: Listening = None,
    instances: InstancesOfEach = "1",
    nats: ServersOfNats = 1,
) -> None:
    """Run a stack on this machine until Ctrl-C. Its nodes are emulated, or join with --listen.

    Takes cluster and settings of the scenario; `hopyard replay` submits its
    jobs. Other commands take the stack of the nearest folder .hopyard, here or
    further up, else your only running stack; with another data folder, two
    variables are printed that name it. Started again on the same folder with
    the same cluster, it goes on where it stopped. A service that dies is
    restarted.

    $ hopyard up
    $ hopyard up --cluster mine.yaml --speed 60 --port 9000 --data /srv/hopyard
    $ hopyard up --listen 0.0.0.0:4222
    $ hopyard up --instances 2 --nats 3
    """
    from hopyard.actions import up as action  # noqa: PLC0415 - as above
    from hopyard.actions.scenario import (  # noqa: PLC0415 - brings numpy
        check_policy,
        chosen_catalogue,
        chosen_cluster,
        chosen_scenario,
        cluster_of,
    )
    from hopyard.local.signals import run_until_stopped  # noqa: PLC0415 - as above
    from hopyard.local.stack_settings import Listen  # noqa: PLC0415 - as above

    check_policy(policy)
    if nats not in CLUSTERS:
        raise Invalid(f"--nats {nats}: choose 1, 3 or 5; an even number survives no more losses")
    if cluster and listen:
        raise Invalid("choose either --cluster, which has emulated nodes, or --listen, by which agents join")
    if (cluster or listen) and typed(context, "scenario"):
        instead = "--cluster" if cluster else "--listen"
        raise Invalid(f"choose either --scenario, which has a cluster, or {instead}")
    chosen = None if cluster or listen else chosen_scenario(scenario, say=say)
    spec = action.UpSpec(
        cluster=cluster_of(chosen) if chosen else chosen_cluster(cluster) if cluster else None,
        catalogue=chosen.catalogue if chosen else chosen_catalogue(None),
        scenario=chosen.name if chosen else "",
        settings=chosen.settings if chosen else {},
        data=data,
        speed=speed,
        port=port,
        policy=policy,
        nats=action.listening(listen) if listen else Listen(),
        instances=action.instances(instances),
        nats_servers=nats,
    )
    run_until_stopped(action.run_up(spec, say))
    say(STOPPED)


def _judge(done: "DemoResult") -> None:
    complain_of(done.violations)
    if not done.complete():
        raise Failure("not every job completed")


def register(app: typer.Typer) -> None:
    app.command("up")(up)
    app.command("demo")(demo)
