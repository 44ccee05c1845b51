"""Files that users write: what is wrong, in which line, in which field."""

from pathlib import Path

import pytest

from schemas.base import File
from shared.runtime.files import BYTES_AT_MOST, InvalidFile, fault, parse, read_file


class Wheel(File, frozen=True):
    spokes: int
    width: float = 1.0


class Cart(File, frozen=True):
    name: str
    wheels: list[Wheel] = []
    spare: dict[str, Wheel] = {}


GOOD = """\
name: red
wheels:
  - spokes: 8
    width: 1e-1
  - {spokes: 9}
"""


def refused(text: str, path: str = "cart.yaml") -> InvalidFile:
    with pytest.raises(InvalidFile) as caught:
        parse(text, path, Cart)
    return caught.value


def test_yaml_becomes_the_struct_and_exponents_are_numbers() -> None:
    assert parse(GOOD, "cart.yaml", Cart) == Cart("red", [Wheel(8, 0.1), Wheel(9)])


def test_json_is_read_by_the_same_door_tabs_included() -> None:
    text = '{\n\t"name": "red",\n\t"wheels": [{"spokes": 8, "width": 1E-1}]\n}'

    assert parse(text, "cart.json", Cart) == Cart("red", [Wheel(8, 0.1)])


@pytest.mark.parametrize(
    ("old", "new", "line", "field"),
    [
        ("spokes: 8", "spokes: eight", 3, "$.wheels[0].spokes"),
        ("{spokes: 9}", "{}", 5, "$.wheels[1].spokes"),
        ("    width", "    girth", 4, "$.wheels[0].girth"),
        ("name: red\n", "", 1, "$.name"),
        ("wheels:", "wheel:", 2, "$.wheel"),
        ("name: red", "name: red\nname: blue", 2, None),
        ("name: red", "name: 'red", 6, None),
        ("name: red", "? [a, b]\n: red", 1, None),
    ],
)
def test_a_fault_has_its_line_and_field(old: str, new: str, line: int, field: str | None) -> None:
    error = refused(GOOD.replace(old, new))

    assert (error.line, error.field) == (line, field)


@pytest.mark.parametrize("value", ["!!bool foo", "!!int ''", "!!float x", "!!timestamp foo"])
def test_a_value_that_contradicts_its_yaml_tag_has_its_line(value: str) -> None:
    error = refused(GOOD.replace("width: 1e-1", f"width: {value}"))
    assert (error.line, error.field) == (4, None)
    assert "is no " in error.reason


@pytest.mark.parametrize("text", ["2026-11-22", "2026-31-12", "12:30", "1:30:00", "-1:30.5"])
def test_dates_and_numbers_with_colons_are_text(text: str) -> None:
    """YAML 1.1 takes 12:30 for 750."""
    assert parse(GOOD.replace("red", text), "cart.yaml", Cart).name == text


def test_an_entry_whose_key_is_no_plain_word_has_the_line_of_its_mapping() -> None:
    fault = refused("name: red\nspare:\n  'a b': {spokes: x}\n")
    assert (fault.line, fault.field) == (3, "$.spare[...].spokes")


def test_a_fault_in_one_of_several_named_entries_points_at_it() -> None:
    text = "name: red\nspare:\n  a: {spokes: 1}\n  b: {spokes: 1, girth: 2}\n"

    assert refused(text).line == 4
    assert refused(text.replace("girth", "width").replace("2}", "wide}")).line == 4
    assert refused(text.replace(", girth: 2", "").replace("b: {spokes: 1", "b: {spokes: x")).line == 4


def test_the_error_reads_as_one_line() -> None:
    assert (
        str(refused("name: 3"))
        == "cart.yaml:1: $.name: it must be text, but is a whole number; in quotes it is text"
    )


def test_an_empty_file_is_refused() -> None:
    assert refused("# nothing\n").reason == "is empty"


def test_aliases_that_explode_are_refused() -> None:
    levels = "\n".join(f"- &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 9))

    assert refused(f"- &l0 [a, a]\n{levels}").reason == "too large or too deep"


def test_more_values_than_a_file_may_have_are_refused_before_they_are_composed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A file of the largest size took half a minute and 1.5 GB."""
    monkeypatch.setattr("shared.runtime.files.NODES_AT_MOST", 100)
    found = refused("a:\n" + "- 1\n" * 1_000)
    assert (found.reason, found.line) == ("too large", 99)


def test_an_alias_of_itself_is_refused() -> None:
    assert refused("&a [*a]").reason == "too large or too deep"


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match=r"cart\.yaml: No such file"):
        read_file(tmp_path / "cart.yaml", Cart)
    with pytest.raises(InvalidFile, match="Is a directory"):
        read_file(tmp_path, Cart)


def test_a_file_that_is_not_text_says_where(tmp_path: Path) -> None:
    path = tmp_path / "cart.yaml"
    path.write_bytes(b"name: red\nwheels: \xff\n")
    with pytest.raises(InvalidFile, match=r"cart\.yaml:2: is not UTF-8"):
        read_file(path, Cart)


def test_a_file_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cart.yaml"
    path.write_bytes(b"#" * (BYTES_AT_MOST + 1))
    with pytest.raises(InvalidFile, match="is larger than"):
        read_file(path, Cart)


def test_a_fault_found_later_has_the_line_of_its_field(tmp_path: Path) -> None:
    path = tmp_path / "cart.yaml"
    path.write_text(GOOD)

    assert str(fault(path, "$.wheels[1].spokes", "too many")).endswith(
        "cart.yaml:5: $.wheels[1].spokes: too many"
    )
    assert fault(tmp_path / "gone", "$.name", "unknown").line is None
