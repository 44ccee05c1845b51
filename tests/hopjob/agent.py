"""What the agent is to the ranks of a job, and no more: a real socket, real processes, and their words."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TextIO

from tests.hopjob.forks import Fork, forks
from tests.paths import ROOT
from tests.torch_python import torch_python

PATIENCE_S = 240.0
LAST_WORDS_S = 10.0
PLUGIN = ROOT / "hopjob" / "__main__.py"
SCRIPTS = Path(__file__).parent / "scripts"
RankMessage = dict[str, Any]


@dataclass
class Rank:
    number: int
    process: subprocess.Popen[bytes] | Fork
    log: Path
    last: Path
    words: list[RankMessage] = field(default_factory=list)
    line: socket.socket | None = None
    silent: threading.Event = field(default_factory=threading.Event)
    """all that it said on its newest line was heard"""

    def said(self, key: str) -> list[Any]:
        return [word[key] for word in list(self.words) if key in word]

    def tell(self, **word: object) -> None:
        assert self.line is not None
        self.line.sendall(json.dumps(word).encode() + b"\n")

    def wait_for(self, key: str, count: int = 1) -> Any:  # noqa: ANN401 - what it said
        """The newest of at least `count` such words."""
        until(lambda: len(self.said(key)) >= count or self.process.poll() is not None)
        if len(self.said(key)) < count:
            self.silent.wait(LAST_WORDS_S)  # its end is known sooner than what it said before
        assert len(self.said(key)) >= count, f"rank {self.number} never said {key}: {self.output()}"
        return self.said(key)[-1]

    def end(self) -> int:
        """The exit code, once the last message was received too, unless a child holds the connection."""
        code = self.process.wait(PATIENCE_S)
        if self.line is not None:
            self.silent.wait(LAST_WORDS_S)
        return code

    def last_word(self) -> RankMessage:
        word: RankMessage = json.loads(self.last.read_text("utf-8"))
        return word

    def output(self) -> str:
        return self.log.read_text("utf-8", "replace")[-3000:]


class Agent:
    """Use as a context: whatever still runs at its end is killed."""

    def __init__(self, folder: Path, *, forks: bool = True) -> None:
        """`forks`: ranks are no processes started one by one, which imports torch for each."""
        self.folder = folder
        self.forks = forks
        self.path = folder / "a.sock"
        self.ranks: dict[tuple[str, int], Rank] = {}
        self.placements = 0
        """begun here; the newest is named for their number"""
        self._server: socket.socket | None = None
        self.grants = True
        """gives each rank the turn of its GPU as soon as it wants it"""

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        for rank in self.ranks.values():
            rank.process.kill()
            rank.process.wait()

    def open(self, *, refused: TextIO | None = None) -> None:
        """Refuses every line where `refused` takes a note of each."""
        self.path.unlink(missing_ok=True)
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(self.path))
        self._server.listen()
        threading.Thread(target=self._accept, args=(self._server, refused), daemon=True).start()

    def close(self) -> None:
        """As an agent that was killed: all lines are gone."""
        if self._server is not None:
            self._server.shutdown(socket.SHUT_RDWR)
            self._server.close()
            self._server = None
        for rank in self.ranks.values():
            if rank.line is not None:
                with contextlib.suppress(OSError):  # gone with its process
                    rank.line.shutdown(socket.SHUT_RDWR)
                rank.line = None

    def start(
        self,
        script: str | Path,
        world: int = 1,
        *,
        launched: bool = True,
        **environment: Any,  # noqa: ANN401
    ) -> list[Rank]:
        """The ranks of a new placement, that have not yet heard go; names of the environment as they are."""
        self.placements += 1
        placement = f"p{self.placements}"
        started = []
        for number in range(world):
            log = self.folder / f"{placement}-{number}.log"
            last = self.folder / f"{placement}-last-{number}.json"
            variables = {
                **surroundings(number, world),
                "HOPJOB_SOCKET": self.path,
                "HOPJOB_PLACEMENT": placement,
                "HOPJOB_LAST": last,
                "HOPJOB_CHECKPOINTS": self.folder / "checkpoints",
                "LEDGER": self.folder / f"{placement}-{number}.ledger",
                **environment,
            }
            given = {key: str(value) for key, value in variables.items()}
            process = self._begun(str(script).split(), given, log, launched=launched)
            rank = self.ranks[placement, number] = Rank(number, process, log, last)
            started.append(rank)
        return started

    def _begun(
        self, words: list[str], environment: dict[str, str], log: Path, *, launched: bool
    ) -> subprocess.Popen[bytes] | Fork:
        log.touch()
        if launched and self.forks:
            return forks(**surroundings()).fork(words, environment, folder=self.folder, log=log)
        command = [str(torch_python()), *([str(PLUGIN)] if launched else []), *words]
        with log.open("wb") as output:
            return subprocess.Popen(
                command,
                env=environment,
                stdout=output,
                stderr=output,
                cwd=self.folder,
                start_new_session=True,
            )

    def run(self, script: str | Path, world: int = 1, **environment: Any) -> list[Rank]:  # noqa: ANN401
        """Started, up, and sent to go."""
        ranks = self.start(script, world, **environment)
        go(ranks)
        return ranks

    def _accept(self, server: socket.socket, refused: TextIO | None) -> None:
        while True:
            try:
                line, _ = server.accept()
            except OSError:
                return
            if refused is not None:
                line.close()
                print("refused", file=refused, flush=True)
                continue
            threading.Thread(target=self._listen, args=(line,), daemon=True).start()

    def _listen(self, line: socket.socket) -> None:
        rank: Rank | None = None
        silent = threading.Event()
        try:
            with line, line.makefile("r", encoding="utf-8") as words:
                for text in words:
                    word = json.loads(text)
                    if "hello" in word:
                        rank = self._rank(word["hello"]["placement"], word["hello"]["rank"])
                        rank.line, rank.silent = line, silent
                    assert rank is not None
                    rank.words.append(word)
                    if "ready" in word and self.grants:
                        rank.tell(turn={"round": word["ready"]["round"]})
        except OSError:
            pass
        finally:
            silent.set()

    def _rank(self, placement: str, number: int) -> Rank:
        until(lambda: (placement, number) in self.ranks)
        return self.ranks[placement, number]


def go(ranks: list[Rank]) -> None:
    ups = [rank.wait_for("up") for rank in ranks]
    for rank in ranks:
        rank.tell(go={"host": "127.0.0.1" if ups[0]["port"] else "", "port": ups[0]["port"] or 0})


def stop(ranks: list[Rank]) -> list[int]:
    """Exit codes after an order by the line."""
    for rank in ranks:
        rank.tell(stop={})
    return [rank.end() for rank in ranks]


def surroundings(number: int = 0, world: int = 1) -> dict[str, object]:
    """What any rank has in its environment, whoever starts it."""
    kept = {key: os.environ[key] for key in ("PATH", "HOME", "TMPDIR") if key in os.environ}
    return {
        **kept,
        "PYTHONPATH": ROOT,
        "PYTHONDONTWRITEBYTECODE": "1",
        "RANK": number,
        "LOCAL_RANK": number,
        "WORLD_SIZE": world,
        "LOCAL_WORLD_SIZE": world,
        "NODE_RANK": 0,
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
    }


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def kill(ranks: list[Rank], number: int = signal.SIGKILL) -> list[int]:
    for rank in ranks:
        rank.process.send_signal(number)
    return [rank.end() for rank in ranks]
