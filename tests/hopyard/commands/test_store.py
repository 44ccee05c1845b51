"""What `store import` reads and sends at once."""

import io
from pathlib import Path

from hopyard.commands.store import BYTES_ENTERED, LINES_ENTERED, _parts
from schemas.archive import LINE_BYTES_MAX, lines_of
from tests.hopyard.cli_line import Hopyard


def test_parts_of_an_import_are_bounded_by_lines_and_by_bytes() -> None:
    short, long = [b"x"] * (2 * LINES_ENTERED + 1), [bytes(BYTES_ENTERED // 2)] * 3
    assert list(map(len, _parts(short))) == [LINES_ENTERED, LINES_ENTERED, 1]
    assert list(map(len, _parts(long))) == [2, 1]
    assert [line for part in _parts([*short, *long]) for line in part] == [*short, *long]
    assert not list(_parts([]))


def test_a_line_without_an_end_is_read_in_pieces(hopyard: Hopyard, tmp_path: Path) -> None:
    """All of it was read at once: with /dev/zero, until there was no memory."""
    line = b" " * (2 * LINE_BYTES_MAX + 1)
    assert list(map(len, lines_of(io.BytesIO(line)))) == [LINE_BYTES_MAX, LINE_BYTES_MAX, 1]
    file = tmp_path / "own.jsonl"
    file.write_bytes(line)
    ran = hopyard("store", "import", str(file))
    assert (ran.code, ran.err.startswith(f"hopyard: {file}:1: not an exported store")) == (2, True)
