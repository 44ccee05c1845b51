"""What `store import` sends at once."""

from hopyard.commands.store import BYTES_ENTERED, LINES_ENTERED, _parts


def test_parts_of_an_import_are_bounded_by_lines_and_by_bytes() -> None:
    short, long = [b"x"] * (2 * LINES_ENTERED + 1), [bytes(BYTES_ENTERED // 2)] * 3
    assert list(map(len, _parts(short))) == [LINES_ENTERED, LINES_ENTERED, 1]
    assert list(map(len, _parts(long))) == [2, 1]
    assert [line for part in _parts([*short, *long]) for line in part] == [*short, *long]
    assert not list(_parts([]))
