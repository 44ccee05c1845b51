"""What workers show while they run: how a gang ran for a while, and what one iteration is made of."""

from schemas.base import Message
from schemas.ids import NodeId


class Stretch(Message, frozen=True, kw_only=True):
    """How a gang ran for a while."""

    throughput: float
    """samples/s of the whole gang, mean over the stretch, noise included"""
    data_s: dict[NodeId, tuple[float, ...]]
    """T_d of a few iterations, by node"""
    wait_s: dict[NodeId, tuple[float, ...]]
    """T_w of the same iterations: the wait for the slowest process"""


class Measured(Message, frozen=True, kw_only=True):
    """What running some iterations on one GPU shows (Hops section 3.2); one number an iteration, seconds."""

    data_s: tuple[float, ...]
    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    update_s: tuple[float, ...]
    iteration_s: tuple[float, ...]
    parameters: float
    """of the model"""
    memory_share: float | None = None
    """of the GPU's memory that the process took; null: not known"""
