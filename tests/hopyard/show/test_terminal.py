"""What reaches the terminal, whoever wrote it."""

import json

import pytest
from rich.table import Table
from rich.text import Text

from hopyard.show.terminal import complain, put, put_line, say, show_json, show_line
from hopyard.show.ticker import Ticker

HOSTILE = "[red]a[/red]\x1b[2K\x1b]0;title\x07\x9b1A\u202eb :tada:"
HARMLESS = "[red]a[/red][2K]0;title1Ab :tada:"


def test_no_text_gives_the_terminal_orders_or_is_taken_for_markup(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column()
    table.add_row(HOSTILE)
    put(table)
    put(Text(HOSTILE))
    put(HOSTILE)
    put_line(HOSTILE)
    say(HOSTILE)
    Ticker().say(HOSTILE)
    with pytest.raises(SystemExit):
        complain(HOSTILE, 1, as_json=False)
    ran = capsys.readouterr()
    assert ran.out.splitlines() == [HARMLESS] * 4
    assert ran.err.splitlines() == [HARMLESS, HARMLESS, f"hopyard: {HARMLESS}"]


def test_a_text_that_does_not_wrap_is_whole_on_a_narrow_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An address or a path is copied from it."""
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    put(Text("x" * 50, no_wrap=True, overflow="ignore"))
    assert capsys.readouterr().out == "x" * 50 + "\n"


def test_a_line_is_printed_whole(capsys: pytest.CaptureFixture[str]) -> None:
    put_line("x" * 200 + "  y")
    assert capsys.readouterr().out == "x" * 200 + "  y\n"


def test_json_has_control_characters_as_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    show_json({"model": HOSTILE})
    show_line({"model": HOSTILE})
    with pytest.raises(SystemExit):
        complain(HOSTILE, 1, as_json=True)
    ran = capsys.readouterr()
    shown, line = ran.out.rpartition("{")[0], ran.out.splitlines()[-1]
    assert json.loads(shown) == json.loads(line) == {"model": HOSTILE}
    assert json.loads(ran.err)["error"]["message"] == HOSTILE
    assert (ran.out + ran.err).replace("\n", "").isprintable()
