"""The state of a job between two updates: what a checkpoint holds, and how it is restored."""

from __future__ import annotations

import contextlib
import functools
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist

from hopjob.agent.ending import LOST
from hopjob.process import Process
from hopjob.state import merging, rates, rng
from hopjob.state.checkpoints import Folder, FolderClaimed, State
from hopjob.state.plain import load, plain
from hopjob.state.samples import Progress

FIRST_MODEL_LIMIT_S = 60.0
"""seconds that copies wait for the checkpoint with which all of them begin"""
POLL_S = 0.05
LAST_SAVE_LIMIT_S, LAST_SAVE_EVERY_S = 60.0, 2.0
"""seconds for which the last save is tried again, and between two attempts"""


class TrainingState:
    def __init__(
        self,
        process: Process,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        scheduler: Any,  # noqa: ANN401 - torch has no one type of schedules
        more: Mapping[str, Any],
    ) -> None:
        self._process, self._order, self._folder = process, process.order, process.folder
        self._root = process.folder
        """the job's folder of checkpoints; `_folder` of a copy is another one after `restore`"""
        self._model, self._optimizer = model, optimizer
        self._others = {**more, **({"scheduler": scheduler} if scheduler is not None else {})}
        self.rate = rates.Rate([optimizer, *self._others.values()], now=rates.base(optimizer))
        self.progress = Progress()
        self.group: Any = None
        """process group of all ranks, on the CPU; None for one rank"""
        self._found: tuple[str, State] | None = None
        self._resume_random: Callable[[], None] = _nothing
        self._saved_at, self._saved = time.monotonic(), -1
        self._unsaved = ""
        """why the newest attempt to save failed; empty: it did not"""
        if self._folder is not None:
            self._state()  # refuses now, not after an hour of training, what a checkpoint cannot hold

    def find_checkpoint(self) -> None:
        """Find the newest checkpoint, and take the model and the progress from it."""
        if self._root is None or self._order.profile is not None:
            return
        try:
            self._found = self._newest(self._root)
        except (OSError, MemoryError, RuntimeError) as error:  # perhaps readable later or elsewhere
            self._process.ending.report_and_exit(
                "lost", {"reason": f"the checkpoints cannot be read: {type(error).__name__}: {error}"}, LOST
            )
        if self._found is not None:
            self._load_model(self._found[1])

    def _newest(self, root: Folder) -> tuple[str, State] | None:
        """The newest checkpoint; rank 0 merges copies first. Raises OSError, MemoryError, RuntimeError."""
        if self._order.rank:
            return root.newest(self._damaged)
        root.claim()
        found = merging.newest(root, self._damaged, plain=self._order.merge == "plain")
        if found is not None or not self._order.copy:
            return found
        return self._first_state(root)

    def _first_state(self, root: Folder) -> tuple[str, State]:
        """The state with which all copies begin: the first copy that starts writes it."""
        if merging.is_first(merging.copies_path(root.path, self._order.placement), merging.BEGINNER):
            state = {**self._state(), "ranks": 0, "rng": {}}
            return root.save(state, 0).name, state
        deadline = time.monotonic() + FIRST_MODEL_LIMIT_S
        while time.monotonic() < deadline:
            if self._process.connection.stop_asked is not None:
                self._process.ending.stopped()
            found = root.newest(self._damaged)
            if found is not None:
                return found
            time.sleep(POLL_S)
        raise OSError(f"no copy has written the model that all begin with within {FIRST_MODEL_LIMIT_S:g} s")

    def restore(self, seed: int) -> None:
        """Once all ranks have joined: restore the rest from rank 0's checkpoint, except random numbers."""
        if self.group is not None:
            self._use_rank_0s(_of_all(self._found[0] if self._found else None, self.group)[0])
        state = self._found[1] if self._found else None
        if state is not None:
            own = state.get("copies", {}).get(self._order.node, state) if self._order.copy else state
            self._optimizer.load_state_dict(own["optimizer"])
            self.rate.now = float(own["learning_rate"])
            for name, one in self._others.items():
                if name in state["others"]:
                    load(one, state["others"][name])
        self._resume_random = self._random_after(state, self._process.seed(seed))
        if self._order.copy and self._root is not None:
            self._folder = merging.folder_of(
                self._root.path, self._order.placement, self._order.node, self.progress.trained
            )
        self._found = None

    def resume_random(self) -> None:
        """Restore or seed the random numbers, as training begins; a second call changes nothing.

        Until then the script draws what it draws in every placement and on every rank: which samples it
        holds out, for one.
        """
        resume, self._resume_random = self._resume_random, _nothing
        resume()

    def end(self) -> None:
        """Save, since all ordered samples are done.

        A copy then ends its process, unless the whole job is done. In that case the first copy that finds
        out loads the merged model and goes on to the end of the script.
        """
        self._save_last()
        if not self._order.copy or self._root is None:
            return
        name = self._finished(self._root) if self._order.rank == 0 else ""
        if self.group is not None:
            name = _of_all(name, self.group)[0]
        if not name:
            self._process.ending.report_and_exit("completed", {"samples": float(self.progress.trained)})
        self._model.load_state_dict(self._root.load(name)["model"])

    def _save_last(self) -> None:
        """Save the trained model. If that fails for long, the job is interrupted: complete, it would be lost.

        All ranks wait for rank 0, which would else be alone in its interruption.
        """
        deadline = time.monotonic() + LAST_SAVE_LIMIT_S
        while True:
            self.save("end")
            over = time.monotonic() > deadline or self._process.connection.stop_asked is not None
            mine = self._unsaved, over
            unsaved, over = mine if self.group is None else _of_all(mine, self.group)[0]
            if not unsaved:
                return
            if over:
                self._process.ending.report_and_exit("lost", {"reason": unsaved}, LOST)
            time.sleep(LAST_SAVE_EVERY_S)

    def _finished(self, root: Folder) -> str:
        """Name of the whole job's checkpoint; empty: the job is not done, or another copy goes on with it."""
        copies = merging.copies_path(root.path, self._order.placement)
        own = [one.samples for one in merging.rounds(root.path) if one.placement == self._order.placement]
        done = max([self.progress.trained, *own])
        if self._order.samples is None or done < self._order.samples:
            return ""
        if not merging.is_first(copies, merging.FINISHER):
            return ""
        found = merging.newest(root, self._damaged, plain=self._order.merge == "plain")
        return found[0] if found is not None and int(found[1]["samples"]) >= self._order.samples else ""

    def checkpoint_due(self) -> bool:
        return self._folder is not None and time.monotonic() - self._saved_at > self._order.interval_s

    def save(self, why: str, *, alone: bool = False) -> None:
        """Save a checkpoint. All ranks call it after the same step, or rank 0 `alone`.

        If the disk is full, training goes on; see also `_save_last`.
        """
        if self._folder is None or self._order.profile is not None:
            return
        mine = (self._order.rank, rng.state())
        numbers = dict([mine] if alone or self.group is None else _of_all(mine, self.group))
        self._saved_at = time.monotonic()
        if self._order.rank == 0 and self.progress.trained != self._saved:
            self._write(why, numbers)

    def _write(self, why: str, numbers: dict[int, rng.Numbers]) -> None:
        assert self._folder is not None
        begin = time.perf_counter()
        try:
            self._folder.path.mkdir(parents=True, exist_ok=True)
            self._folder.save({**self._state(), "rng": numbers}, self.progress.trained)
        except FolderClaimed as error:
            self._process.ending.report_and_exit("lost", {"reason": str(error)}, LOST)
        except (OSError, RuntimeError) as error:
            reason = f"no checkpoint of {self.progress.trained} samples: {error}"[:300]
            sys.stderr.write(f"hopjob: {reason}\n")
            self._process.connection.send(unsaved={"reason": reason})
            self._unsaved = reason
        else:
            self._saved, self._unsaved = self.progress.trained, ""
            self._process.ending.samples = float(self.progress.trained)
            took = time.perf_counter() - begin
            self._process.connection.send(
                saved={"samples": self.progress.trained, "seconds": took, "why": why}
            )
            self._prune()

    def _prune(self) -> None:
        """Remove merged copies: all copies that began with the merged checkpoint have read it by now."""
        if self._root is not None:
            with contextlib.suppress(OSError):
                merging.prune(self._root, but=self._order.placement)

    def _state(self) -> State:
        """What a checkpoint holds. Raises TypeError for a value that is neither a tensor nor plain."""
        model = self._model.state_dict()  # updated in place, since it holds metadata beside the tensors
        model.update(plain(dict(model), "the model's state"))
        others = {name: plain(one.state_dict(), f"{name}'s state") for name, one in self._others.items()}
        return {
            "model": model,
            "optimizer": plain(self._optimizer.state_dict(), "the optimizer's state"),
            "others": others,
            "samples": self.progress.trained,
            "learning_rate": self.rate.now,
            "ranks": self._order.ranks,
        }

    def _load_model(self, state: State) -> None:
        self._model.load_state_dict(state["model"])
        self.progress.restore(int(state["samples"]))
        self._saved = self.progress.trained

    def _use_rank_0s(self, name: str | None) -> None:
        """Load rank 0's checkpoint if this rank found another one, as it may in a network folder."""
        if name == (self._found[0] if self._found else None):
            return
        self._found = None
        self.progress.restore(0)
        if name is not None:
            assert self._folder is not None
            try:
                self._found = name, self._folder.load(name)  # a copy's `_folder` is still the job's
            except (OSError, MemoryError, ValueError, RuntimeError) as error:
                self._process.ending.report_and_exit(
                    "lost", {"reason": f"rank 0's checkpoint {name}: {error}"}, LOST
                )
            self._load_model(self._found[1])

    def _random_after(self, state: State | None, seed: int) -> Callable[[], None]:
        """What continues the random numbers of this checkpoint. It does not keep the checkpoint in memory."""
        rank, samples = self._order.rank, self.progress.trained
        begin = functools.partial(rng.begin, seed, rank, samples)
        if self._order.copy:
            return begin
        if state is None:  # then rank 0 keeps the seed of the script
            return begin if rank else _nothing
        same = state["ranks"] == self._order.ranks and rank in state["rng"]
        return functools.partial(rng.restore, state["rng"][rank]) if same else begin

    def _damaged(self, name: str, reason: str) -> None:
        assert self._folder is not None
        if self._order.rank == 0:
            self._folder.set_aside(name)
        sys.stderr.write(f"hopjob: checkpoint {name} is damaged and passed over: {reason}\n")
        self._process.connection.send(damaged={"file": name, "reason": reason})


def _nothing() -> None:
    pass


def _of_all(mine: Any, group: Any) -> list[Any]:  # noqa: ANN401 - anything
    found = [None] * dist.get_world_size(group)
    dist.all_gather_object(found, mine, group=group)
    return found
