"""A rank in plain Python that speaks as the plug-in does, and does what its arguments say. No torch.

`python -m hopjob SCRIPT [WORD[=VALUE] …]`, in their order once all may train: `iterations=N` (of 8 samples a
rank; then complete), `forever`, `orphan` (saves, and waits until its agent is gone), `deaf` (it hears nothing
any more), `child` (a process in a session of its own), `memory=MB`, `fill=FILE`, `exit=N`, `raise`, `lost`,
`kill=SIGNAL`, `print=TEXT`, `saves=N` (of which it tells as fast as it can);
`turns=SECONDS`: on a GPU that it shares, for ever, `memory-of-gpu=BYTES` and
`peak-of-gpu=BYTES`, known after its first turn, before;
`rank=N`: what follows is for that rank alone. `silent`: ends without a word.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
FOLDER = Path(os.environ["HOPJOB_CHECKPOINTS"])
BATCH, ITERATION_S, BEAT_S = 8, 0.02, 0.2
TIMES = ("data_s", "forward_s", "backward_s", "update_s", "iteration_s")


class Line:
    def __init__(self) -> None:
        self.going, self.stopping, self.alone, self.turn = (threading.Event() for _ in range(4))
        self.memory: dict[str, float] = {}
        self.computing: dict[str, float] = {}
        self.wants: int | None = None
        self.holds: int | None = None
        self.samples = max((float(path.name) for path in FOLDER.iterdir()), default=0.0)
        self.up: dict[str, object] | None = None
        self.socket = self.connected()
        threading.Thread(target=self.listen, daemon=True).start()

    def connected(self) -> socket.socket:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(os.environ["HOPJOB_SOCKET"])
        about = {"placement": os.environ["HOPJOB_PLACEMENT"], "rank": RANK, "pid": os.getpid()}
        self.say(hello={**about, "attached": True, "samples": self.samples, "holds": self.holds})
        if self.wants is not None:
            self.say(ready={"round": self.wants, **self.memory})
        if self.up is not None and not self.going.is_set():
            self.say(up=self.up)
        return self.socket

    def say(self, **word: object) -> None:
        with contextlib.suppress(OSError):
            self.socket.sendall(json.dumps(word).encode() + b"\n")

    def last(self, **word: object) -> None:
        part = Path(os.environ["HOPJOB_LAST"] + ".part")
        part.write_text(json.dumps(word))
        part.replace(os.environ["HOPJOB_LAST"])
        self.say(**word)

    def listen(self) -> None:
        while True:
            with contextlib.suppress(OSError):
                for text in self.socket.makefile("r"):
                    word = json.loads(text)
                    if "turn" in word:
                        self.wants, self.holds = None, word["turn"]["round"]
                        self.turn.set()
                    else:
                        self.going.set() if "go" in word else self.stopping.set()
            self.alone.set()
            time.sleep(0.05)
            with contextlib.suppress(OSError):
                self.connected()


def left(line: Line, why: str, word: str) -> NoReturn:
    save(line, why)
    whole = float(os.environ["HOPJOB_SAMPLES"]) if word == "completed" else 0.0
    line.last(**{word: {"samples": max(line.samples, whole)}})
    os._exit(0)


def save(line: Line, why: str) -> None:
    if RANK == 0:
        (FOLDER / str(line.samples)).touch()
        line.say(saved={"samples": line.samples, "seconds": 0.01, "why": why})


def train(line: Line, iterations: float) -> NoReturn:
    said, at = 0, time.monotonic()
    done = 0
    while done < iterations:
        if line.stopping.is_set():
            left(line, "stop", "stopped")
        time.sleep(ITERATION_S)
        done += 1
        line.samples += BATCH * WORLD
        if RANK == 0 and time.monotonic() - at > BEAT_S:
            times = {"data_s": [[0.001] * 3] * WORLD, "wait_s": [[0.0] * 3] * WORLD}
            ran = {"seconds": time.monotonic() - at, "iterations": done - said, "batch": BATCH * WORLD}
            line.say(observed={"samples": line.samples, **ran, **times, "unhidden_s": 0.0})
            save(line, "interval")
            said, at = done, time.monotonic()
    left(line, "end", "completed")


def take_turns(line: Line, seconds: float) -> NoReturn:
    number = 0
    while True:
        number += 1
        line.turn.clear()
        line.wants = number
        line.say(ready={"round": number, **line.memory})
        while not line.turn.wait(0.05):
            if line.stopping.is_set():
                left(line, "stop", "stopped")
        time.sleep(seconds)
        line.samples += BATCH
        line.holds = None
        line.memory.update(line.computing)
        line.say(done={"round": number})
        save(line, "interval")


def orphan(line: Line) -> None:
    save(line, "interval")
    line.alone.wait()


def tell(line: Line, saves: str) -> None:
    for number in range(int(saves)):
        line.say(saved={"samples": number, "seconds": 0.0, "why": "interval"})


def deaf(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(10_000)


def fill(megabytes: str) -> None:
    held = bytearray(int(megabytes) * 1_000_000)
    held[::4096] = b"x" * len(held[::4096])
    time.sleep(10_000)


def pour(path: str) -> None:
    with open(path, "wb", buffering=0) as file:  # noqa: PTH123 - it may be no file
        while True:
            file.write(b"x" * 4_000 + b"\n")


def fail(line: Line) -> None:
    line.last(failed={"reason": "ValueError: no such layer"})
    raise ValueError("no such layer")


def lose(line: Line) -> None:
    line.last(lost={"reason": "Connection reset by peer"})
    os._exit(75)


WORDS: dict[str, Callable[[Line, str], object]] = {
    "iterations": lambda line, value: train(line, float(value)),
    "forever": lambda line, _: train(line, float("inf")),
    "turns": lambda line, value: take_turns(line, float(value)),
    "memory-of-gpu": lambda line, value: line.memory.update(kept=float(value), peak=float(value), whole=10e9),
    "peak-of-gpu": lambda line, value: line.computing.update(peak=float(value)),
    "orphan": lambda line, _: orphan(line),
    "saves": tell,
    "deaf": deaf,
    "child": lambda *_: subprocess.Popen(["sleep", "1000"], start_new_session=True),
    "memory": lambda _, value: fill(value),
    "fill": lambda _, value: pour(value),
    "exit": lambda _, value: sys.exit(int(value)),
    "raise": lambda line, _: fail(line),
    "lost": lambda line, _: lose(line),
    "kill": lambda _, value: os.kill(os.getpid(), int(value)),
    "print": lambda _, value: print(value, flush=True),
}


def measure(line: Line) -> NoReturn:
    line.say(up={"port": None, "samples": 0.0, "elastic": True})
    times = [0.01] * int(os.environ["HOPJOB_PROFILE"])
    line.say(profiled={**dict.fromkeys(TIMES, times), "parameters": 7})
    os._exit(0)


def main() -> None:
    words = [argument.partition("=") for argument in sys.argv[2:]]
    if ("silent", "", "") in words:
        return
    line = Line()
    if "HOPJOB_PROFILE" in os.environ:
        measure(line)
    line.up = {"port": 29_500 if RANK == 0 and WORLD > 1 else None, "samples": line.samples, "elastic": True}
    line.say(up=line.up)
    while not line.going.wait(0.05):
        if line.stopping.is_set():
            left(line, "stop", "stopped")
    only = RANK
    for word, _, value in words:
        if word == "rank":
            only = int(value)
        elif only == RANK:
            WORDS[word](line, value)


signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
main()
