"""The manifests against the schemas that Kubernetes publishes, of its oldest and newest version at hand.

Their 100 MB are in an environment of their own. No API server has seen the manifests.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.container.compose_stack import command
from tests.paths import ROOT

pytestmark = pytest.mark.container

PACKAGE = "kubernetes-validate==1.37.0"
VERSIONS = ("1.29", "1.37")
MANIFESTS = sorted(
    path for path in (ROOT / "deploy/kubernetes").glob("*.yaml") if path.name != "kustomization.yaml"
)


@pytest.fixture(scope="module")
def validate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("validate")
    command(sys.executable, "-m", "venv", str(folder))
    command(str(folder / "bin/python"), "-m", "pip", "install", "--quiet", PACKAGE)
    return folder / "bin/kubernetes-validate"


def judged(validate: Path, version: str, manifest: Path) -> subprocess.CompletedProcess[str]:
    words = (validate, "--strict", "-k", version, manifest)
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.name)
def test_a_manifest_is_valid(validate: Path, version: str, manifest: Path) -> None:
    done = judged(validate, version, manifest)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert f"against version {version}" in said


def test_a_wrong_one_would_be_noticed(validate: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "agents.yaml"
    text = (ROOT / "deploy/kubernetes/agents.yaml").read_text()
    wrong.write_text(text.replace("terminationGracePeriodSeconds", "terminationGraceSeconds"))
    done = judged(validate, VERSIONS[-1], wrong)
    assert done.returncode != 0
    assert "terminationGraceSeconds" in done.stdout + done.stderr
