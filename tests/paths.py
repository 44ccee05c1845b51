"""Where tests find the project's own files and the reference data that ships with them."""

import atexit
import lzma
import shutil
import tempfile
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests" / "data"
BESIDE = ROOT.parent / "shared" / "data"
"""data that lies beside some checkouts: what may not ship"""


@cache
def data(name: str) -> Path:
    """A file of reference data (`tests/data/README.md`), unpacked for this run where it is packed.

    One that is not shipped is looked for beside the checkout; it may be missing there.
    """
    packed = DATA / f"{name}.xz"
    if not packed.exists():
        return DATA / name if (DATA / name).exists() else BESIDE / name
    path = _unpacked() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.decompress(packed.read_bytes()))
    return path


@cache
def _unpacked() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="hopyard-data-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
