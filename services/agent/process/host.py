"""What all workers of one agent share: folders, control groups, templates, settings."""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from schemas.cluster import Node
from schemas.events import StartOrdered
from services.agent.gpus.names import is_cpu
from services.agent.process.claims import WorkerClaim
from services.agent.process.folders import Folders
from services.agent.process.kernel.cgroups import Group, Groups
from services.agent.process.kernel.process_scan import ProcessScan
from services.agent.process.kernel.spawning import Account, account_of
from services.agent.process.launch import MARK, LaunchContext
from services.agent.process.templates import Templates
from services.agent.tasks import Report
from services.agent.work.runner import Write

LOCALHOST = "127.0.0.1"
"""address of nodes whose cluster file gives none: all are on one machine"""
WorkerProcesses = Group | ProcessScan
"""finds and kills all processes of a worker: its control group, or a scan of /proc"""


class UnfitNode(OSError):
    """This node can start no worker, whichever the job; the text says why."""


class Host(msgspec.Struct, kw_only=True):
    folders: Folders
    groups: Groups | None
    templates: Templates | None
    report: Callable[[Report], None]
    write: Write | None
    gpus: tuple[str, ...]
    """names of the GPUs for CUDA_VISIBLE_DEVICES, by index; empty: the machine has no GPUs"""
    unfit: str = ""
    """why the machine's GPUs cannot be named, although it has a driver; empty: they can, or it has none"""
    network_interface: str
    accounts: bool
    """whether ranks run as the account of their job's user, if the agent is root"""
    observe_every_s: float
    merge: str
    """how weights of copies are averaged"""
    orphan_s: float
    """seconds that ranks train on without an agent"""

    def context(self, order: StartOrdered, gpu_indices: tuple[int, ...]) -> LaunchContext:
        return LaunchContext(
            socket=str(self.folders.socket),
            plugin=str(self.folders.plugin),
            checkpoints=str(self.folders.checkpoints(order)),
            gpus=self.devices(own_node(order), gpu_indices),
            host=own_node(order).address or LOCALHOST,
            network_interface=self.network_interface,
            merge=self.merge,
            orphan_s=self.orphan_s,
        )

    def check(self, node: Node) -> None:
        """Raises UnfitNode."""
        if gone := self.folders.gone():
            raise UnfitNode(f"{gone} was removed: restart the agent")
        if is_cpu(node.gpu_type):
            return
        if self.unfit:
            raise UnfitNode(self.unfit)
        if self.gpus and node.gpus > len(self.gpus):
            raise UnfitNode(f"the node has {node.gpus} GPUs, but its machine {len(self.gpus)}")

    def devices(self, node: Node, gpu_indices: Sequence[int]) -> tuple[str, ...] | None:
        """Names of these GPUs for CUDA_VISIBLE_DEVICES; None: they are CPU slots."""
        return tuple(map(self._name, gpu_indices)) if self.gpus and not is_cpu(node.gpu_type) else None

    def interpreter(self) -> str:
        """The interpreter of the last script that ran under the agent's account; empty: none has."""
        with contextlib.suppress(OSError):
            return self.folders.interpreter.read_text()
        return ""

    def account(self, order: StartOrdered) -> Account | None:
        """The account for the job's ranks; None: the agent's own. Raises NoAccount."""
        return account_of(order.spec.user) if self.accounts else None

    def _name(self, index: int) -> str:
        return self.gpus[index] if index < len(self.gpus) else str(index)

    def processes_of(self, claim: WorkerClaim) -> WorkerProcesses:
        """A handle on all processes of a worker; makes no control group."""
        if claim.groups:
            return Group({controller: Path(folder) for controller, folder in claim.groups.items()})
        return ProcessScan(self.variable(claim.order), [rank.process for rank in claim.ranks if rank.process])

    def groups_of(self, order: StartOrdered) -> dict[str, str]:
        """Folders of a worker's control groups, by controller; empty: this agent has no control groups."""
        if self.groups is None:
            return {}
        folders = self.groups.of(order.placement_id).folders
        return {controller: str(folder) for controller, folder in folders.items()}

    def variable(self, order: StartOrdered) -> str:
        """The beginning of the environment variable that marks the processes of this worker on this node."""
        return f"{MARK}={self.folders.worker(order.placement_id)}/"


def own_node(order: StartOrdered) -> Node:
    """The node to which the order is addressed."""
    return next(one for one in order.nodes if one.node_id == order.node_id)
