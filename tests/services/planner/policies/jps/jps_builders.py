"""Jobs and clusters of the paper's examples, and what a policy makes of them."""

from collections.abc import Mapping
from typing import Any

import msgspec

from schemas.ids import GpuType
from services.planner.policies.contract.decision import Choice, Decision
from services.planner.policies.contract.view import View, ViewJob, ViewNode
from tests.services.planner.planner_builders import decide, job, node, view

INSIDE, BETWEEN = 300e9 / 8 / 2, 10e9 / 8 / 2
"""bytes/s of an all-reduce: half of 300 Gb/s in a node, of 10 Gb/s between nodes"""
NODE_GPUS = 5
MEGA = 1e6

RECONSTRUCTED = {
    "resnet101": {"v100": 411.0, "p100": 410.0, "t4": 350.0},
    "resnet18": {"v100": 644.0, "p100": 406.0, "t4": 275.0},
    "vgg19": {"v100": 1754.0, "p100": 929.0, "t4": 884.0},
    "alexnet": {"v100": 2118.0, "p100": 2080.0, "t4": 2063.0},
}
"""samples/s of one GPU"""
GRADIENTS = {"resnet101": 170.08, "resnet18": 45.12, "vgg19": 558.44, "alexnet": 228.16}
"""megabytes"""
EPOCH = {"resnet101": 50_000, "resnet18": 100_000, "vgg19": 50_000, "alexnet": 50_000}
EPOCHS = {"resnet101": 200, "resnet18": 200, "vgg19": 200, "alexnet": 100}
"""table III"""


def unlike(name: str, gpus: int, gpu_type: str, *, unconnected: bool = False) -> ViewNode:
    """A node that runs proportional gangs; `unconnected`: exchanges take no time."""
    shown = msgspec.structs.replace(
        node(name, gpus, gpus=gpus, gpu_type=gpu_type), modes=("lockstep", "proportional")
    )
    if unconnected:
        return shown
    return msgspec.structs.replace(shown, link_bandwidth=INSIDE, network_bandwidth=BETWEEN)


def trains(
    name: str,
    rates: Mapping[str, float],
    samples: float,
    gpus: int = 27,
    **fields: Any,  # noqa: ANN401 - fields of ViewJob
) -> ViewJob:
    return job(
        name,
        range(1, gpus + 1),
        gpu_types=tuple(GpuType(one) for one in sorted(rates)),
        single_gpu={GpuType(one): rate for one, rate in rates.items()},
        samples=samples,
        **{"batch_size": 128, **fields},
    )


def printed(each: int = NODE_GPUS, **more: int) -> View:
    """Table III on so many GPUs of each type, 5 a node; `more`: of a type, others."""
    nodes = [
        unlike(f"{gpu_type}-{first:03d}", min(NODE_GPUS, gpus - first), gpu_type)
        for gpu_type, gpus in ({"v100": each, "p100": each, "t4": each} | more).items()
        for first in range(0, gpus, NODE_GPUS)
    ]
    jobs = [
        trains(
            name,
            RECONSTRUCTED[name],
            float(EPOCH[name] * EPOCHS[name]),
            gpus=300,
            gradient_bytes=GRADIENTS[name] * MEGA,
            epoch_samples=float(EPOCH[name]),
            submitted_at=0.0,
        )
        for name in RECONSTRUCTED
    ]
    return view(jobs, sorted(nodes, key=lambda one: one.node_id))


def faithful(policy: str, seen: View, **options: Any) -> Decision:  # noqa: ANN401 - options of any policy
    """As in the paper: one exchange an epoch, no GPU idle."""
    idle: dict[str, Any] = {} if policy.startswith("optimus") else {"idle": "false"}
    return decide(policy, seen, law="epoch", **idle, **options)


def by_type(decision: Decision) -> dict[str, dict[str, int]]:
    """GPUs of each job by type; a node is named after its type."""
    return {choice.job_id: _types(choice) for choice in decision.choices}


def _types(choice: Choice) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in choice.gang.members:
        gpu_type = one.node.partition("-")[0]
        found[gpu_type] = found.get(gpu_type, 0) + one.gpus
    return found
