"""The page's files over HTTP: who may read them, what the browser may do with them, what they refer to."""

import re
from collections.abc import Mapping

import pytest

from hopyard.show.metrics import LABELS
from services.admission.http.static import FOLDER
from tests.services.admission.admission_world import Served, serving

OURS = sorted(path for path in FOLDER.iterdir() if "uplot" not in path.name)
REFERENCE = re.compile(r'(?:href|src)="([^"#]+)"')
IMPORT = re.compile(r'from "\./([^"]+)"')
METRIC = re.compile(r'^  \["(?P<label>[^"]+)", "(?P<name>\w+)",', re.MULTILINE)


async def read(api: Served, path: str, status: int = 200, tag: str = "") -> tuple[str, Mapping[str, str]]:
    headers = {"If-None-Match": tag} if tag else {}
    async with api.client.get(path, headers=headers) as response:
        assert response.status == status
        return await response.text(), response.headers


async def test_the_page_needs_no_token_but_its_data_do() -> None:
    async with serving(api_token="secret") as api:
        text, headers = await read(api, "/")
        assert "<title>hopyard</title>" in text
        assert headers["Content-Type"] == "text/html; charset=utf-8"
        await read(api, "/v1/timeline", 401)


async def test_all_that_the_page_refers_to_is_served_beside_it() -> None:
    async with serving() as api:
        text, _ = await read(api, "/")
        names = set(REFERENCE.findall(text))
        assert {"page/app.js", "page/style.css", "page/uplot.min.js"} <= names
        modules = {f"page/{name}" for path in OURS for name in IMPORT.findall(path.read_text("utf-8"))}
        for name in names | modules:
            await read(api, f"/{name}")


@pytest.mark.parametrize("path", ["/", "/page/app.js", "/page/uplot.min.js", "/page/icon.svg"])
async def test_the_page_runs_only_scripts_from_its_own_origin(path: str) -> None:
    async with serving() as api:
        _, headers = await read(api, path)
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'self';")
        assert "unsafe" not in policy
        assert "*" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"


async def test_a_file_that_the_browser_has_is_not_sent_again() -> None:
    async with serving() as api:
        _, headers = await read(api, "/page/app.js")
        text, again = await read(api, "/page/app.js", 304, headers["ETag"])
        assert text == ""
        assert again["ETag"] == headers["ETag"]


@pytest.mark.parametrize(
    "path", ["/page/none.js", "/page/../static.py", "/page/%2e%2e%2fstatic.py", "/page/"]
)
async def test_no_other_file_is_served(path: str) -> None:
    async with serving() as api:
        await read(api, path, 404)


@pytest.mark.parametrize("path", OURS, ids=lambda path: str(path.name))
def test_the_page_loads_no_foreign_files_and_shows_text_as_text(path: str) -> None:
    text = FOLDER.joinpath(path).read_text("utf-8")
    addresses = set(re.findall(r"https?://[^\s\"')]+", text)) - {"http://www.w3.org/2000/svg"}
    assert addresses == set()
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text
    )
    assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=\"|style=\"|javascript:", text)
    assert not re.search(r"""(?:fetch|get|lines|call)\(["'`]/""", text), (
        "addresses are relative: a proxy may add a prefix"
    )


def test_the_library_comes_with_its_licence() -> None:
    assert "Permission is hereby granted" in (FOLDER / "uplot.LICENSE").read_text("utf-8")
    assert "uPlot (v1.6.32)" in (FOLDER / "uplot.min.js").read_text("utf-8")[:100]


def test_metrics_are_called_as_on_the_command_line() -> None:
    shown = dict(METRIC.findall((FOLDER / "cluster.js").read_text("utf-8")))
    assert len(shown) > 10
    assert {label.lower(): name for label, name in shown.items()} == {
        LABELS[name].lower(): name for name in shown.values()
    }
