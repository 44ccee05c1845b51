"""The image of the services, as far as it can be read without building it."""

import re

import pytest

from tests.paths import ROOT


def test_what_volumes_are_mounted_on_is_there_and_hopyards() -> None:
    """Docker makes a mount point that is not in the image, as root's, where no service could write."""
    [made] = re.findall(r"install -d -o hopyard (.+)", (ROOT / "Dockerfile").read_text("utf-8"))
    named = re.findall(r"mount a volume at `(.+?)`", (ROOT / "docs" / "containers.md").read_text("utf-8"))
    mounted = re.findall(r"(?:estimator|archive):(/\S+?)\"", (ROOT / "compose.yaml").read_text("utf-8"))
    assert (named, set(mounted)) == (["/data/output"], {"/data"})
    assert {*named, *mounted} <= set(made.split())


@pytest.mark.parametrize("file", ["Dockerfile", "deploy/kubernetes/agents.yaml"])
def test_files_of_the_folder_that_a_service_starts_in_are_no_modules_of_it(file: str) -> None:
    words = (ROOT / file).read_text("utf-8").replace('", "', " ")
    assert set(re.findall(r"python (\S+) .*\b(?:services|shared)\.", words)) == {"-P"}
