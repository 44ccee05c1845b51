"""What the workers of a node share."""

from collections.abc import Callable

import msgspec

from schemas.events import StartOrdered
from services.agent.gpus.names import is_cpu
from services.agent.process.folders import Folders
from services.agent.process.kernel.cgroups import Group, Groups
from services.agent.process.kernel.identities import Identity
from services.agent.process.kernel.walking import Walk
from services.agent.process.launch import Ground
from services.agent.process.templates import Templates
from services.agent.tasks import Report
from services.agent.work.runner import Write

Members = Group | Walk
"""all processes of a worker"""


class Host(msgspec.Struct, kw_only=True):
    folders: Folders
    groups: Groups | None
    templates: Templates | None
    report: Callable[[Report], None]
    write: Write | None
    gpus: tuple[str, ...]
    """what CUDA_VISIBLE_DEVICES calls them, by index; empty: the machine has none"""
    network_interface: str
    observe_every_s: float
    orphan_s: float

    def ground(self, order: StartOrdered, gpu_indices: tuple[int, ...]) -> Ground:
        here = next(one for one in order.nodes if one.node_id == order.node_id)
        return Ground(
            socket=str(self.folders.socket),
            plugin=str(self.folders.plugin),
            checkpoints=str(self.folders.checkpoints(order)),
            gpus=tuple(map(self._name, gpu_indices)) if self.gpus and not is_cpu(here.gpu_type) else None,
            host=here.address or "127.0.0.1",
            network_interface=self.network_interface,
            orphan_s=self.orphan_s,
        )

    def _name(self, index: int) -> str:
        return self.gpus[index] if index < len(self.gpus) else str(index)

    def members(self, order: StartOrdered, ranks: list[Identity]) -> Members:
        """All processes of a worker: to be found, not made."""
        if self.groups is not None:
            return self.groups.of(order.placement_id)
        return Walk(self.variable(order), ranks)

    def variable(self, order: StartOrdered) -> str:
        """As all processes of a worker have it, and no others."""
        return f"HOPJOB_PLACEMENT={order.placement_id}"
