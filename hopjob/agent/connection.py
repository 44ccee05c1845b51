"""The connection to the agent over its Unix socket: lines of JSON both ways, each an object with one key.

Training goes on while the agent is away. The process connects again in the background and announces itself
again, so a restarted agent adopts it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable

RETRY_S = 0.2
"""seconds between two attempts to reach an agent that is away"""
ACCEPTED_S = 15
"""seconds after which an open connection counts as accepted; an agent may send nothing for hours"""
SEND_S = 2
"""longest time for which an agent that does not read may hold up the training"""
POLL_S = 0.02
"""seconds between two checks whether the agent has sent the meeting"""


class Connection:
    def __init__(self, path: str, hello: Callable[[], dict[str, object]], *, orphan_s: float) -> None:
        """`path`: the agent's socket; empty: there is none. `hello`: the first message of every connection.

        `orphan_s`: how long the agent may be away, or refuse the connection. After that the job goes on
        elsewhere and this process has to end. If its script is not attached and has not ended after twice
        this time, it is killed.
        """
        self._path = path
        self._hello = hello
        self._orphan_s = orphan_s
        self._up: dict[str, object] | None = None
        self._socket: socket.socket | None = None
        self._lock = threading.RLock()  # a signal may come while its thread sends, and end the process
        self.stop_asked: float | None = None
        """when this process was asked to stop, in seconds of `time.monotonic`"""
        self.meeting: tuple[str, int] | None = None
        """host and port at which the ranks connect, once the agent has sent them"""
        self.turn_request: dict[str, object] | None = None
        """the message with which this process reported that it is ready for its turn"""
        self.held: int | None = None
        """the round for which it has the turn"""
        self.next_due = 0
        """when its next turn is due, ticks of the agent's clock of cycles"""
        self._granted = threading.Event()

    def open(self) -> None:
        if self._path:
            self._connect()
            threading.Thread(target=self._listen, name="hopjob-connection", daemon=True).start()
            os.register_at_fork(after_in_child=self._close_in_child)

    def ask_to_stop(self) -> None:
        """Note that the process should stop. It only assigns a variable, since signal handlers call it."""
        if self.stop_asked is None:
            self.stop_asked = time.monotonic()

    def send(self, **message: object) -> None:
        """Send a message. One that cannot be sent now is lost; `up` is repeated on the next connection."""
        if "up" in message:
            self._up = message
        with self._lock:
            self._write(message)

    def wait_for_meeting(self) -> bool:
        """Wait until the agent has sent the meeting (returns True) or has asked to stop (False)."""
        while self.meeting is None and self.stop_asked is None:
            time.sleep(POLL_S)
        return self.stop_asked is None

    def request_turn(self, number: int, due: int, memory: dict[str, object]) -> None:
        """Ask for the turn of the GPU, for a round. `due`: when the turn is due, as the ranks agreed."""
        self._granted.clear()
        with self._lock:
            self.turn_request = {"round": number, "due": due, **memory}
            self._write({"ready": self.turn_request})

    def wait_for_turn(self, seconds: float) -> bool:
        """Wait for the turn, at most `seconds`; returns whether it was given."""
        return self._granted.wait(seconds)

    def give_back(self) -> None:
        with self._lock:
            number, self.held = self.held, None
            self._write({"done": {"round": number}})

    def _write(self, message: dict[str, object]) -> None:
        if self._socket is not None:
            try:
                self._socket.sendall(json.dumps(message).encode() + b"\n")
            except OSError:
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)  # a message cut short must not be continued
                self._socket = None

    def _connect(self) -> socket.socket | None:
        opened = socket.socket(socket.AF_UNIX)
        try:
            opened.connect(self._path)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_S, 0))
        except OSError:
            opened.close()
            return None
        with self._lock:
            self._socket = opened
            self._write({"hello": {**self._hello(), "holds": self.held}})
            if self._up and self.meeting is None:
                self._write(self._up)
            if self.turn_request is not None:
                self._write({"ready": self.turn_request})
        return opened

    def _listen(self) -> None:
        since = time.monotonic()
        while True:
            current = self._socket or self._connect()
            if current is not None and self._read_messages(current):
                since = time.monotonic()
            self._end_without_agent(time.monotonic() - since)
            time.sleep(RETRY_S)

    def _read_messages(self, current: socket.socket) -> bool:
        """Read messages until the connection ends; False if the agent refused the connection."""
        begin, received = time.monotonic(), 0
        with contextlib.suppress(OSError, ValueError), current.makefile("r", encoding="utf-8") as lines:
            for line in lines:
                self._handle(json.loads(line))
                received += 1
        with self._lock:
            if self._socket is current:
                self._socket = None
        current.close()
        return received > 0 or time.monotonic() - begin > ACCEPTED_S

    def _end_without_agent(self, away_s: float) -> None:
        """End the process by SIGTERM, as an agent would: a rigid script may save on this signal."""
        if away_s > self._orphan_s and self.stop_asked is None:
            os.kill(os.getpid(), signal.SIGTERM)
            self.ask_to_stop()
        if away_s > 2 * self._orphan_s and not self._hello()["attached"]:
            os.kill(os.getpid(), signal.SIGKILL)

    def _handle(self, message: dict[str, dict[str, object]]) -> None:
        if "go" in message:
            self.meeting = (str(message["go"]["host"]), int(str(message["go"]["port"] or 0)))
        if "stop" in message:
            self.ask_to_stop()
        if "turn" in message:
            turn = message["turn"]
            self._take_turn(int(str(turn["round"])), int(str(turn.get("next", 0))))

    def _take_turn(self, number: int, next_due: int) -> None:
        with self._lock:
            if self.turn_request is None or self.turn_request["round"] != number:
                return  # the turn is of a round that is over
            self.turn_request, self.held, self.next_due = None, number, next_due
        self._granted.set()

    def _close_in_child(self) -> None:
        """Called in a fork, such as a loader's worker: drop the connection, which belongs to the parent."""
        inherited, self._socket = self._socket, None
        self._lock = threading.RLock()
        if inherited is not None:
            os.close(inherited.detach())
