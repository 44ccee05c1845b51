"""Weights the gradients of ranks whose shares of an update differ, so that every sample counts alike.

DistributedDataParallel averages the gradients g_k of n ranks, no matter how many samples each rank had. If
rank k had s_k of B samples and its loss is the mean over them, the gradient over all samples is

    Σ s_k / B · g_k = 1 / n · Σ (n · s_k / B) · g_k

so every backward pass begins with n · s_k / B in place of 1. Where ranks compute several batches of an update
one after another, s_k is the number of samples of one batch: with D batches over all ranks, the pass of each
begins with n / D, and the gradients of a rank's batches are summed. A backward pass within another one, as in
reentrant checkpointing, begins unchanged, since the gradient that it is given has the weight already. A term
of the loss that does not depend on samples, such as a penalty on weights, keeps its size, since the mean of
these factors is 1. DistributedDataParallel's only hook for communication stays free for the script.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch

from hopjob.accumulation import Accumulation

CURRENT = "_current_graph_task_id"
"""torch's private name for the id of the backward pass that a thread runs"""
NO_PASS = -1
"""the id in a thread that runs no backward pass"""


PASSES_UNKNOWN = (
    f"torch {torch.__version__} does not tell which backward pass a thread runs: one that begins while "
    "another runs is taken for a part of it, as checkpointing has it. A script that runs several at once, in "
    "threads of its own, trains wrongly in a gang of unlike shares; have it planned in lockstep."
)


class GradientWeights:
    """Replaces `torch.autograd.backward` permanently, once there is a weight other than 1."""

    def __init__(self, accumulation: Accumulation | None = None) -> None:
        """`accumulation` is called before and after every backward pass."""
        self.weight = 1.0
        self._accumulation = accumulation
        self._installed = False
        self._under_way = 0
        """number of backward passes under way in this process"""
        self._pass_ids_known = _pass_ids_known()
        """whether torch says which pass a thread runs; if not, any pass that begins during another counts as
        a part of it"""

    def set(self, weight: float) -> None:
        self.weight = weight
        if (weight != 1.0 or self._accumulation is not None) and not self._installed:
            self._install()

    def _install(self) -> None:
        self._installed = True
        if not self._pass_ids_known:
            warnings.warn(PASSES_UNKNOWN, stacklevel=2)
        plain: Any = torch.autograd.backward

        def backward(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
            if self._within_another():
                plain(tensors, grad_tensors, *args, **kwargs)
                return
            if self.weight != 1.0:
                tensors = _as_sequence(tensors)
                grad_tensors = self._weighted(tensors, grad_tensors)
            if self._accumulation is not None:
                self._accumulation.before_backward()
            self._under_way += 1
            try:
                plain(tensors, grad_tensors, *args, **kwargs)
            finally:
                self._under_way -= 1
            if self._accumulation is not None:
                self._accumulation.after_backward()

        torch.autograd.backward = backward

    def _within_another(self) -> bool:
        return _pass_of_thread() != NO_PASS if self._pass_ids_known else self._under_way > 0

    def _weighted(self, tensors: Sequence[Any], given: Any) -> list[Any]:  # noqa: ANN401
        grads = [None] * len(tensors) if given is None else _as_sequence(given)
        return [self._weighted_grad(*pair) for pair in zip(tensors, grads)]

    def _weighted_grad(self, tensor: Any, grad: Any) -> Any:  # noqa: ANN401
        if grad is not None:
            return grad * self.weight
        # without `grad` torch refuses a tensor of several numbers, with an error of its own
        return torch.full_like(tensor, self.weight) if tensor.numel() == 1 else None


def _pass_of_thread() -> int:
    """The id of the backward pass of which this thread runs a part; torch has no public function for it."""
    found: int = getattr(torch._C, CURRENT)()  # noqa: SLF001
    return found


def _pass_ids_known() -> bool:
    """Whether this version of torch gives the id; called while no backward pass runs."""
    try:
        return _pass_of_thread() == NO_PASS
    except (AttributeError, TypeError, RuntimeError):
        return False


def _as_sequence(one: Any) -> Sequence[Any]:  # noqa: ANN401
    return (one,) if isinstance(one, torch.Tensor) else tuple(one)
