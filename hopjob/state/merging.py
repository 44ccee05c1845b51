"""Merges the copies of a job, each of which trained alone on a node from the same checkpoint.

A copy writes its checkpoints into its own folder below the job's, `copies/PLACEMENT/NODE/BEGAN/`; BEGAN is
the number of samples in the checkpoint that the copy began with. The next rank 0 that starts looks for the
placement whose copies have done most. If they have done more than the job's newest checkpoint holds, this
rank writes the merged checkpoint:

    samples = min BEGAN + Σ s_i      θ = Σ s_i θ_i / Σ s_i      s_i: samples that copy i did since it began

(HadarE; plain: θ = Σ θ_i / n). The result depends on these files only. So a merge that was cut short, or that
two processes make at the same time, can be made again with the same result. A damaged file costs the work of
its copy since the checkpoint before. Optimizers are not averaged: each copy goes on with its own optimizer,
and a new copy with that of the first.
"""

from __future__ import annotations

import copy as copying
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import torch

from hopjob.state.checkpoints import Folder, State, samples_of

COPIES = "copies"
FINISHER = "finisher"
BEGINNER = "beginner"
OnDamaged = Callable[[str, str], None]
"""called with the name of a damaged file and the reason"""


@dataclass(frozen=True)
class Copy:
    node: str
    began: int
    folder: Folder

    @property
    def samples(self) -> int:
        """The samples in its newest checkpoint, by the file's name."""
        names = self.folder.names()
        return samples_of(names[0]) if names else self.began


@dataclass(frozen=True)
class Round:
    """The copies of one placement, by node."""

    placement: str
    copies: tuple[Copy, ...]

    @property
    def samples(self) -> int:
        return total([(copy.began, copy.samples) for copy in self.copies])


def total(counts: list[tuple[int, int]]) -> int:
    """Samples of the job. `counts`: of each copy the samples that it began with and those that it has now."""
    return min(began for began, _ in counts) + sum(done - began for began, done in counts)


def copies_path(root: Path, placement: str) -> Path:
    return root / COPIES / quote(placement, safe="")


def folder_of(root: Path, placement: str, node: str, began: int) -> Folder:
    path = copies_path(root, placement) / quote(node, safe="") / f"{began:015d}"
    return Folder(str(path), placement, root=root)


def rounds(root: Path) -> list[Round]:
    """The rounds of copies, those with most samples first. Raises OSError."""
    found = [_round(path) for path in _folders(root / COPIES)]
    return sorted((one for one in found if one.copies), key=lambda one: (-one.samples, one.placement))


def _round(path: Path) -> Round:
    copies = [
        Copy(unquote(node.name), int(began.name), Folder(str(began)))
        for node in _folders(path)
        for began in _folders(node)
        if began.name.isdigit()
    ]
    return Round(unquote(path.name), tuple(copy for copy in copies if copy.folder.names()))


def _folders(path: Path) -> Iterator[Path]:
    try:
        yield from sorted(one for one in path.iterdir() if one.is_dir())
    except FileNotFoundError:
        return


def newest(root: Folder, on_damaged: OnDamaged, *, plain: bool = False) -> tuple[str, State] | None:
    """The job's newest checkpoint, merged first where copies have done more. Raises what `Folder` does."""
    names = root.names()
    known = samples_of(names[0]) if names else -1
    for one in rounds(root.path):
        if one.samples <= known:
            break
        merged = merge(one, on_damaged, plain=plain)
        if merged is not None and int(merged["samples"]) > known:
            return root.save(merged, merged["samples"]).name, merged
    return root.newest(on_damaged)


def merge(one: Round, on_damaged: OnDamaged, *, plain: bool = False) -> State | None:
    """The merged state; None if no copy has a whole checkpoint."""
    mean, counts, kept = _Mean(), [], {}
    most: tuple[int, Any] = (0, {})
    for copy in one.copies:
        found = copy.folder.newest(partial(_set_aside, copy.folder, on_damaged))
        if found is None:
            continue
        state = found[1]
        done = int(state["samples"])
        mean.add(state["model"], 1 if plain else max(done - copy.began, 0))
        counts.append((copy.began, done))
        kept[copy.node] = {"optimizer": state["optimizer"], "learning_rate": state["learning_rate"]}
        most = max(most, (done - copy.began, state["others"]), key=lambda each: each[0])
    if not counts:
        return None
    return {
        "model": mean.state(),
        "others": most[1],
        "copies": kept,
        **next(iter(kept.values())),
        "samples": total(counts),
        "ranks": 0,
        "rng": {},
    }


def _set_aside(folder: Folder, on_damaged: OnDamaged, name: str, why: str) -> None:
    folder.set_aside(name)
    on_damaged(str(folder.path / name), why)


class _Mean:
    """The weighted mean of tensors by name, in double precision; other values are taken from the first."""

    def __init__(self) -> None:
        self._first: State = {}
        self._sums: dict[str, torch.Tensor] = {}
        self._weight = 0

    def add(self, model: State, weight: int) -> None:
        """Raises RuntimeError for a model that is unlike the first."""
        self._first = self._first or model
        if model.keys() != self._first.keys():
            raise RuntimeError("the copies of the job are unlike models")
        for name, value in model.items():
            if isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex()):
                wide = torch.complex128 if value.is_complex() else torch.float64
                part = value.to(wide) * weight
                self._sums[name] = self._sums[name] + part if name in self._sums else part
        self._weight += weight

    def state(self) -> State:
        if not self._weight:
            return self._first
        model = copying.copy(self._first)  # keeps the metadata that torch has beside the tensors
        for name, one in self._sums.items():
            model[name] = (one / self._weight).to(self._first[name].dtype)
        return model


def is_first(folder: Path, name: str) -> bool:
    """Whether this process is the first to make the file of this name. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        (folder / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def prune(root: Folder, *, but: str) -> None:
    """Remove the copies of placements other than `but` whose work the job's newest checkpoint holds.

    Raises OSError.
    """
    names = root.names()
    for path in _folders(root.path / COPIES):
        one = _round(path)
        if one.placement != but and names and (not one.copies or one.samples <= samples_of(names[0])):
            shutil.rmtree(path, ignore_errors=True)
