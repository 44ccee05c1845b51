"""An experiment's report: figures as JSON, a Markdown document with its pictures, one HTML file of both.

The document is written once, part by part; the HTML has the pictures inside, so it can be sent as one file
and opened years later.
"""

import base64
import csv
import html
import io
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from string import Template

import msgspec
from markdown_it import MarkdownIt

from hopyard.failures import Failure
from hopyard.lab.report.verdicts import Verdict
from schemas.base import Message
from shared.runtime import outputs
from shared.runtime.disk import make_folder, naming

FIGURES = "figures.json"
TABLE = "figures.csv"
COLUMNS = ("group", "arm", "measure", "unit", "at", "mean", "half_width", "values")
DIGITS = 6
KEPT_APART = ("scenario", "scenario hash")
"""members in which a report must agree with another in the same folder"""
MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")


class Figure(Message, frozen=True, kw_only=True):
    """A number that the tables show, with what it is made of."""

    group: str
    arm: str
    measure: str
    unit: str
    mean: float
    half_width: float | None
    """half width of the 95 % interval over seeds"""
    values: tuple[float, ...]
    """values, one for each seed"""
    at: float | None = None
    paper: float | None = None


class Table(msgspec.Struct, frozen=True):
    """Texts; a column whose heading begins with > holds numbers."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


class Picture(msgspec.Struct, frozen=True):
    name: str
    caption: str
    png: bytes
    svg: str = ""
    """a picture that the page shows instead"""


class Folded(msgspec.Struct, frozen=True):
    """A long table that the page hides until it is opened."""

    title: str
    table: Table


Part = str | Table | Picture | Folded
"""a paragraph or heading of Markdown, a table, a picture, a long table"""


class Report(msgspec.Struct, frozen=True):
    title: str
    parts: Sequence[Part]
    figures: Sequence[Figure]


class Written(Message, frozen=True, kw_only=True):
    """The JSON of an experiment."""

    experiment: str
    about: dict[str, str]
    """versions, machine, scenario, seeds"""
    figures: tuple[Figure, ...]
    verdicts: tuple[Verdict, ...] = ()
    failures: tuple[str, ...]


def refuse_other(folder: Path, about: Mapping[str, str]) -> None:
    """Raises Failure where the folder holds a report about another scenario, which would be lost."""
    try:
        there = msgspec.json.decode((folder / FIGURES).read_bytes(), type=_There).about
    except (OSError, msgspec.DecodeError):
        return
    if any(label in there and there[label] != about[label] for label in KEPT_APART):
        raise Failure(
            f"{folder} holds a report about other jobs or settings ({there['scenario']}): "
            "choose another --out"
        )


class _There(msgspec.Struct):
    about: dict[str, str]


def write(folder: Path, report: Report, written: Written) -> list[Path]:
    """Everything, below `folder`. Returns what a reader opens first."""
    with naming(folder):
        return _written(folder, report, written)


def _written(folder: Path, report: Report, written: Written) -> list[Path]:
    plots = folder / "plots"
    make_folder(plots)
    pictures = [part for part in report.parts if isinstance(part, Picture)]
    for picture in pictures:
        outputs.write(plots / f"{picture.name}.png", picture.png)
    paths = [folder / name for name in ("report.html", "report.md", FIGURES)]
    outputs.write(paths[0], page(report).encode())
    outputs.write(paths[1], markdown(report).encode())
    outputs.write(paths[2], msgspec.json.format(msgspec.json.encode(written), indent=2) + b"\n")
    outputs.write(folder / TABLE, _table(written.figures))
    return paths


def _table(figures: Iterable[Figure]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([COLUMNS, *map(_line, figures)])
    return text.getvalue().encode()


def _line(figure: Figure) -> list[str]:
    numbers = (figure.at, figure.mean, figure.half_width)
    return [
        figure.group,
        figure.arm,
        figure.measure,
        figure.unit,
        *("" if number is None else _digits(number) for number in numbers),
        " ".join(map(_digits, figure.values)),
    ]


def _digits(number: float) -> str:
    return f"{number:.{DIGITS}g}"


def markdown(report: Report) -> str:
    return "\n\n".join([f"# {report.title}", *(_markdown(part) for part in report.parts)]) + "\n"


def page(report: Report) -> str:
    """One HTML file without further files: the beginning, the contents, the rest."""
    headings = _Headings()
    parts = [headings.rendered(part) if isinstance(part, str) else _html(part) for part in report.parts]
    first = next((i for i, part in enumerate(report.parts) if str(part).startswith("#")), len(parts))
    body = [f"<h1>{html.escape(report.title)}</h1>", *parts[:first], headings.contents(), *parts[first:]]
    return Template(PAGE).substitute(title=html.escape(report.title), body="\n".join(body))


class _Headings:
    """Headings as they are rendered, each with a name to jump to."""

    def __init__(self) -> None:
        self._found: list[tuple[str, str, str]] = []
        """tag, name, text"""

    def rendered(self, text: str) -> str:
        tokens = MARKDOWN.parse(text)
        for token, inside in pairwise(tokens):
            if token.type == "heading_open":
                name = f"part-{len(self._found) + 1}"
                token.attrSet("id", name)
                self._found.append((token.tag, name, inside.content))
        rendered: str = MARKDOWN.renderer.render(tokens, MARKDOWN.options, {})
        return rendered

    def contents(self) -> str:
        items = "".join(
            f'<li class="{tag}"><a href="#{name}">{html.escape(text)}</a></li>'
            for tag, name, text in self._found
        )
        return f'<nav aria-label="Contents"><ul>{items}</ul></nav>' if items else ""


def _html(part: Table | Picture | Folded) -> str:
    match part:
        case Table():
            return str(MARKDOWN.render(_markdown(part)))
        case Folded(title=title, table=table):
            return f"<details><summary>{html.escape(title)}</summary>\n{_html(table)}</details>"
        case Picture():
            caption = html.escape(part.caption)
            data = base64.b64encode(part.png).decode()
            image = part.svg or f'<img src="data:image/png;base64,{data}" alt="{caption}">'
            return f'<figure><div class="wide">{image}</div><figcaption>{caption}</figcaption></figure>'


def _markdown(part: Part) -> str:
    match part:
        case str():
            return part
        case Picture():
            return f"![{part.caption}](plots/{part.name}.png)"
        case Table():
            return "\n".join(_lines(part))
        case Folded(title=title, table=table):
            return f"**{title}**\n\n{_markdown(table)}"


def _lines(table: Table) -> Iterable[str]:
    yield _row([column.lstrip(">") for column in table.columns])
    yield _row(["--:" if column.startswith(">") else ":--" for column in table.columns])
    yield from map(_row, table.rows)


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
  :root { --ink: #1c2430; --soft: #5d6b7c; --line: #dde3ea; --wash: #f6f8fa; }
  body { max-width: 68rem; margin: 3rem auto 6rem; padding: 0 1.5rem; color: var(--ink); background: #fff;
         overflow-wrap: anywhere;
         font: 16px/1.6 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
  h1 { font-size: 2rem; line-height: 1.2; margin: 0 0 1.5rem; letter-spacing: -.01em; }
  h2 { margin: 3.5rem 0 1rem; padding-top: 1rem; border-top: 1px solid var(--line); font-size: 1.4rem; }
  h3 { margin: 2.2rem 0 .6rem; font-size: 1.05rem; }
  p, li { max-width: 46rem; }
  code { font: .88em ui-monospace, "SF Mono", Menlo, Consolas, monospace; background: var(--wash);
         padding: .1em .35em; border-radius: .25em; }
  pre code { display: block; padding: .8em 1em; overflow-x: auto; }
  table { border-collapse: collapse; margin: 1.2rem 0; font-size: .9rem; font-variant-numeric: tabular-nums;
          display: block; overflow-x: auto; }
  th, td { padding: .38rem .8rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
  th { font-weight: 600; color: var(--soft); border-bottom: 2px solid var(--line); }
  tbody tr:hover { background: var(--wash); }
  td em { color: var(--soft); }
  nav ul { list-style: none; margin: 1.5rem 0 0; padding: .7rem 1rem; background: var(--wash);
           border-radius: .4rem; max-width: 46rem; box-sizing: border-box; }
  blockquote { margin: 1rem 0; padding: .1rem 1rem; max-width: 44rem; background: #fff6e0;
               border-left: 4px solid #e69f00; }
  nav .h3 { margin-left: 1.2rem; font-size: .92rem; }
  nav a { color: #0b5ea8; text-decoration: none; }
  nav a:hover { text-decoration: underline; }
  details { margin: 1.2rem 0; }
  summary { cursor: pointer; color: #0b5ea8; }
  figure { margin: 1.6rem 0; }
  .wide { overflow-x: auto; }
  .wide img, .wide svg { display: block; width: 100%; min-width: 44rem; height: auto; }
  .gantt text { font-size: 11px; fill: var(--soft); }
  .gantt .arm { font-weight: 600; font-size: 12px; fill: var(--ink); }
  .gantt .type { text-anchor: end; }
  .gantt .tick { text-anchor: middle; font-size: 10px; }
  .gantt .job { text-anchor: middle; font-size: 9.5px; fill: var(--ink); pointer-events: none;
                paint-order: stroke; stroke: #fff; stroke-opacity: .6; stroke-width: 2.5px; }
  .gantt .grid { stroke: var(--line); fill: none; }
  .gantt .line { stroke: var(--ink); stroke-width: .7; }
  .gantt:hover path[fill]:not(:hover) { opacity: .45; }
  @media (max-width: 40rem) { body { margin-top: 1.5rem; padding: 0 1rem; } h1 { font-size: 1.5rem; } }
  figcaption { color: var(--soft); font-size: .88rem; max-width: 46rem; }
</style>
<body>
$body
</body>
</html>
"""
