"""An older version of this very project, and a place where versions are installed one over the other.

`Installed.folder` is what an environment has of hopyard: processes that start see the version of the moment.
Libraries are those of the present environment.
"""

import os
import re
import shutil
import subprocess
import tarfile
import tomllib
from io import BytesIO
from pathlib import Path

from tests.paths import DATA, ROOT

DATA_FILTER = getattr(tarfile, "data_filter", lambda member, _: member)
"""of `tarfile`, as which archives are extracted; Python 3.11.2 has none"""

PACKAGES = ("hopyard", "services", "shared", "schemas", "loadgen", "hopjob")


def of_commit(commit: str, folder: Path) -> Path:
    """The tree of a commit. Raises CalledProcessError for one that the history lacks."""
    archive = subprocess.run(
        ["git", "archive", commit, *PACKAGES, "pyproject.toml"], cwd=ROOT, check=True, capture_output=True
    ).stdout
    return _unpacked(BytesIO(archive), folder)


def kept(name: str, folder: Path) -> Path:
    """The version of an archive in `tests/data/versions`."""
    return _unpacked(BytesIO((DATA / "versions" / name / "source.tar.xz").read_bytes()), folder)


def hold_ports(version: Path) -> None:
    """Have a version that holds no ports until its processes listen on them hold them, as later ones do.

    Others would be given them in the seconds between.
    """
    for name, its in (("hopyard/local/stack.py", "each"), ("shared/runtime/process/nats_server.py", "probe")):
        file = version / name
        chosen = re.compile(rf"^( +){its}\.bind\(\(\w+, 0\)\)\n", re.MULTILINE)
        held = (
            rf"\1{its}.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
            rf"\g<0>\1{its}.dup().detach()\n"
        )
        text, count = chosen.subn(held, file.read_text())
        assert count == 1, name
        file.write_text(text)


def present(folder: Path, *apart: str) -> Path:
    """This checkout, with copies of some packages, which may be changed."""
    folder.mkdir()
    for name in (*PACKAGES, "pyproject.toml"):
        if name in apart:
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            (folder / name).symlink_to(ROOT / name)
    _describe(folder)
    return folder


def _unpacked(archive: BytesIO, folder: Path) -> Path:
    with tarfile.open(fileobj=archive) as parts:
        parts.extraction_filter = DATA_FILTER
        parts.extractall(folder)
    _describe(folder)
    return folder


def _describe(folder: Path) -> None:
    """What an installer writes, so that its plug-ins are found and not the present version's."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    described = folder / f"hopyard-{project['version']}.dist-info"
    described.mkdir()
    (described / "METADATA").write_text(
        f"Metadata-Version: 2.4\nName: hopyard\nVersion: {project['version']}\n"
    )
    points = "".join(
        f"[{group}]\n" + "".join(f"{name} = {where}\n" for name, where in entries.items())
        for group, entries in project["entry-points"].items()
    )
    (described / "entry_points.txt").write_text(points)


class Installed:
    def __init__(self, folder: Path, version: Path) -> None:
        """`folder`: not there yet; `version`: a tree to begin with."""
        self.folder = folder
        self._draft = folder.with_name("next")
        self.install(version)

    def install(self, version: Path) -> None:
        self._draft.symlink_to(version)
        self._draft.replace(self.folder)

    def environ(self, home: Path) -> dict[str, str]:
        """The environment of a user of the version: nothing set, and no other stack of the user is found."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("HOPYARD_")}
        return own | {"PYTHONPATH": str(self.folder), "XDG_STATE_HOME": str(home)}
