"""The log of a NATS server: bounded by the server, and searched for failed writes and for reloads."""

import re
from contextlib import suppress
from pathlib import Path

MAX_BYTES = 64 * 1024 * 1024
"""size from which the server begins another file; clients can have it write lines"""
FILES = 2
"""files that it keeps, with the one that it writes"""
TAIL_BYTES = 2_000
READ_BYTES = 1_000_000
FAILED_WRITE = re.compile(
    rb"""^(\[\d+\]\ \S+\ \S+\ )?\[(ERR|WRN|FTL)\]\ # process, date, time, level
    (?!\S+\ -\ \w+:\d+\ -\ )                     # no line about a client, with text of the client in it
    .*no\ space\ left\ on\ device""",
    re.MULTILINE | re.VERBOSE,
)
RELOADED = re.compile(
    rb"""^\[\d+\]\ \S+\ \S+\ (
    \[INF\]\ Reloaded\ server\ configuration.*
    |\[ERR\]\ Failed\ to\ reload\ server\ configuration:\ (.*?:\d+:\d+:\ )?(?P<why>.*) # file, line, column
    )\n""",
    re.MULTILINE | re.VERBOSE,
)


class NatsLog:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._began_at = 0
        """size of the file at the server's last start, in bytes"""
        self._searched_to = 0
        """up to which it was searched for failed writes, in bytes"""
        self._searched: int | None = None
        """the file that was searched, by its number on the disk; None: none yet"""
        self._failed = False
        self._reload_from: int | None = None
        """size of the file at an order to read the configuration again; None: it is known how that ended"""
        self._refused = ""
        """why it did not take the configuration; empty: it has"""

    def settings(self) -> dict[str, object]:
        """The part of a server's configuration that is about its log."""
        return {"log_file": str(self.path), "logfile_size_limit": MAX_BYTES, "logfile_max_num": FILES}

    def begin(self) -> None:
        """Called before a start of the server: what is there by then is about an earlier one."""
        there = self.path.stat() if self.path.exists() else None
        self._began_at = self._searched_to = there.st_size if there else 0
        self._searched = there.st_ino if there else None
        self._failed = False
        self._reload_from, self._refused = None, ""

    def reload_begins(self) -> None:
        """Called before the server is ordered to read its configuration again."""
        self._reload_from = self._size()

    def why_not_reloaded(self) -> str | None:
        """Why the server goes on with the configuration before; empty: it does not; None: it has not said."""
        if self._reload_from is not None:
            begin = self._reload_from if self._reload_from <= self._size() else 0  # in another file
            with suppress(OSError), self.path.open("rb") as log:  # its disk may be gone
                log.seek(begin)
                for said in RELOADED.finditer(log.read(READ_BYTES)):
                    self._reload_from, self._refused = None, (said["why"] or b"").decode(errors="replace")
        return self._refused if self._reload_from is None else None

    def _size(self) -> int:
        try:
            return self.path.stat().st_size
        except OSError:  # its disk is gone, or there is no file yet
            return 0

    def write_failed(self) -> bool:
        """Whether the server has failed to write for want of space since its start."""
        with suppress(OSError):  # the disk is gone, or there is no file yet
            number = self.path.stat().st_ino
            if self._searched not in {None, number}:  # the server has begun another file
                for before in self.path.parent.glob(f"{self.path.name}.*"):
                    if before.stat().st_ino == self._searched:
                        self._search(before)
                self._searched_to = 0
            self._searched = number
            self._search(self.path)
        return self._failed

    def _search(self, path: Path) -> None:
        """Search the whole lines that are new. Raises OSError."""
        with path.open("rb") as log:
            log.seek(self._searched_to)
            while not self._failed and (said := log.read(READ_BYTES)):
                lines, end, _ = said.rpartition(b"\n")
                if not end:
                    return
                self._failed = FAILED_WRITE.search(lines) is not None
                self._searched_to += len(lines) + len(end)
                log.seek(self._searched_to)

    def tail(self) -> str:
        """The last that the server has said since its start."""
        said = self.path.read_bytes() if self.path.exists() else b""
        said = said[self._began_at :] if self._began_at <= len(said) else said
        return said[-TAIL_BYTES:].decode(errors="replace").strip() or "it wrote no log"
