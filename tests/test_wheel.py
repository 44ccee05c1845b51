"""What is installed elsewhere: the wheel holds every file that the packages are made of, Python or not."""

import subprocess
import tomllib
import zipfile
from pathlib import Path

from hatchling.builders.wheel import WheelBuilder

from tests.paths import ROOT

PAGE = "services/admission/http/page"


def test_the_wheel_holds_all_files_of_the_packages(tmp_path: Path) -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    packages = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    [wheel] = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(wheel) as built:
        held = set(built.namelist())
    assert tracked(packages) - held == set()
    assert {f"{PAGE}/index.html", f"{PAGE}/app.js", f"{PAGE}/style.css", f"{PAGE}/uplot.LICENSE"} <= held


def tracked(packages: list[str]) -> set[str]:
    """Files of the packages that are part of the project, as git knows them; else all but what it ignores."""
    listed = subprocess.run(
        ["git", "ls-files", *packages], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode == 0 and listed.stdout:
        return {name for name in listed.stdout.splitlines() if (ROOT / name).exists()}
    found = (path for package in packages for path in (ROOT / package).rglob("*") if path.is_file())
    return {str(path.relative_to(ROOT)) for path in found if "__pycache__" not in path.parts}
