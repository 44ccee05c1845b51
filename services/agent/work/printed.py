"""The lines that an emulated job prints about its progress. Pure.

It prints at its start and end, at checkpoints, and at the ends of stretches, which grow longer.
"""

from schemas.events import StartOrdered
from services.agent.tasks import Completed, Failed, Profiled, Report, Stopped
from services.agent.work.progress import Progress
from shared.domain import gangs


def rank(order: StartOrdered) -> int:
    """The number in the gang of the rank that prints: the first on this node."""
    before = (one.gpus for one in order.gang.members if one.node < order.node_id)
    return sum(before)


def started(order: StartOrdered, gpu_indices: tuple[int, ...]) -> str:
    gpus = ",".join(map(str, gpu_indices))
    here = f"on {order.node_id}, GPU {gpus}, {len(gpu_indices)} of {order.gang.gpus} GPUs of the gang"
    if order.profile_iterations:
        return f"emulated: measures {order.profile_iterations} iterations {here}"
    return f"emulated: starts {here}, at {_far(order, order.samples_done)}"


def trained(order: StartOrdered, progress: Progress) -> str:
    return f"trained to {_far(order, progress.done)}, {progress.rate:.1f} samples/s"


def saved(order: StartOrdered, samples: float) -> str:
    return f"checkpoint at {_far(order, samples)}"


def ended(order: StartOrdered, last: Report) -> str:
    match last:
        case Completed(samples_done=samples) if order.until is not None:
            return f"share done: {_far(order, samples)}"
        case Completed():
            return f"complete: {_far(order, order.spec.samples)}"
        case Stopped(samples_done=samples) if order.node_id in gangs.leaders(order.gang):
            return f"stopped on order at {_far(order, samples)}"
        case Stopped():
            return "stopped on order"
        case Profiled():
            return "measured"
        case Failed(reason=reason):
            return f"failed: {reason}"
        case _:
            raise AssertionError(last)


def _far(order: StartOrdered, samples: float) -> str:
    """The job's progress as text, in epochs too if its data set has a size."""
    total, epoch = order.spec.samples, order.spec.workload.dataset_samples
    far = f"{samples:.0f} of {total:.0f} samples ({samples / total:.1%})"
    return f"{far}, epoch {samples / epoch:.1f} of {total / epoch:.1f}" if epoch else far
