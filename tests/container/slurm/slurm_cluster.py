"""A Slurm cluster of three nodes in one container: three slurmd, on this machine's network."""

import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from hopyard.local.stack import free_ports
from tests.container.compose_stack import command

HERE = Path(__file__).parent
IMAGE = "hopyard-test-slurm"
NODES = ("srv-0", "srv-1", "srv-2")
UP_LIMIT_S = 60.0
KILL_WAIT_S = 5
REQUEUE_S = 10
"""after which a job that is requeued may begin again"""


def build() -> None:
    """hopyard's image, which the compose tests share, and Slurm's; packages are a layer of their own."""
    network = ("docker", "build", "--quiet", "--network", "host")
    command(*network, "--target", "cli", "--build-arg", "LIBRARIES=cli", "--tag", "hopyard/cli", ".")
    command(*network, "--file", str(HERE / "Dockerfile"), "--tag", IMAGE, ".")


class SlurmCluster:
    """A cluster in a container; its commands run there, as a user's would on a login node."""

    def __init__(self, container: str) -> None:
        self.container = container

    def run(self, *words: str, environ: Mapping[str, str] | None = None, fails: bool = False) -> str:
        """What it printed, errors included. Raises AssertionError where it does not end as expected."""
        variables = [word for name, value in (environ or {}).items() for word in ("--env", f"{name}={value}")]
        done = subprocess.run(
            ("docker", "exec", *variables, self.container, *words),
            capture_output=True,
            text=True,
            timeout=120.0,
            check=False,
        )
        said = done.stdout + done.stderr
        assert (done.returncode != 0) == fails, f"{' '.join(words)} ended with {done.returncode}: {said}"
        return said

    def jobs(self) -> dict[str, str]:
        """By node, the job that runs there."""
        lines = self.run("squeue", "--noheader", "--states=RUNNING", "--format=%N %i").splitlines()
        return {node: job for node, _, job in (line.partition(" ") for line in lines)}

    def logs(self) -> str:
        script = "cat /shared/*/agent-*.log; tail -n 40 /var/log/slurm*.log; squeue; sinfo"
        return self.run("bash", "-c", script)


@contextmanager
def slurm_cluster(folder: Path) -> Iterator[SlurmCluster]:
    """Up within the block, gone after it. `folder`: of this machine, for files that go in."""
    name = f"hopyard-test-slurm-{os.getpid()}"
    (folder / "slurm.conf").write_text(_configuration())
    where = (f"{folder}:/cfg:ro", f"{HERE / 'start.sh'}:/start.sh:ro")
    volumes = [word for each in where for word in ("--volume", each)]
    command(
        "docker",
        "run",
        "--detach",
        "--init",
        "--network",
        "host",
        "--name",
        name,
        *volumes,
        IMAGE,
        "bash",
        "/start.sh",
    )
    try:
        cluster = SlurmCluster(name)
        _await_nodes(cluster)
        yield cluster
    finally:
        command("docker", "rm", "--force", "--volumes", name)


def _await_nodes(cluster: SlurmCluster) -> None:
    until = time.monotonic() + UP_LIMIT_S
    said = ""
    while said.split() != ["idle"] * len(NODES):
        assert time.monotonic() < until, f"Slurm is not up: {said}\n{cluster.logs()}"
        time.sleep(0.2)
        said = cluster.run("bash", "-c", "sinfo --noheader --Node --format=%t || true")


def _configuration() -> str:
    controller, *daemons = free_ports(1 + len(NODES))
    nodes = "\n".join(
        f"NodeName={node} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs=2 RealMemory=500"
        for node, port in zip(NODES, daemons, strict=True)
    )
    return f"""\
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=cred_expire={REQUEUE_S}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd-%n.pid
SlurmdSpoolDir=/var/spool/slurmd-%n
StateSaveLocation=/var/spool/slurmctld
SlurmdLogFile=/var/log/slurmd-%n.log
SlurmctldLogFile=/var/log/slurmctld.log
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_min_interval=100000
SlurmdParameters=config_overrides
KillWait={KILL_WAIT_S}
InactiveLimit=0
MinJobAge=300
{nodes}
PartitionName=batch Nodes=ALL Default=YES State=UP MaxTime=60
"""
