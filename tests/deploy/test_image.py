"""The image of the services, as far as it can be read without building it."""

import re

from tests.paths import ROOT


def test_what_volumes_are_mounted_on_is_there_and_hopyards() -> None:
    """Docker makes a mount point that is not in the image, as root's, where no service could write."""
    [made] = re.findall(r"install -d -o hopyard (.+)", (ROOT / "Dockerfile").read_text("utf-8"))
    named = re.findall(r"mount a volume at `(.+?)`", (ROOT / "docs" / "containers.md").read_text("utf-8"))
    mounted = re.findall(r"(?:estimator|archive):(/\S+?)\"", (ROOT / "compose.yaml").read_text("utf-8"))
    assert (named, set(mounted)) == (["/data/output"], {"/data"})
    assert {*named, *mounted} <= set(made.split())
