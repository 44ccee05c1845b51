"""The process of policies begins with every planner, and again whenever a policy took too long."""

import subprocess
import sys
from pathlib import Path

import pytest

from schemas.settings import Settings
from services.planner.core.tasks import Known, Look
from services.planner.policies.contract.configurations import Configurations
from services.planner.work.policy_process import PolicyServer
from services.planner.work.steps import Want
from tests.services.planner.work.workers_builders import SEEN

MOVES = "tests.services.planner.unfit.misbehaves:Misbehaves+how=moves"

LOGGING = {"rich", "structlog"}
"""over a quarter of what its imports took"""


def test_a_policy_process_does_not_import_libraries_that_only_a_failure_needs() -> None:
    show = "import services.planner.work.policy_process, sys; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", show], check=True, capture_output=True, text=True)
    imported = set(ran.stdout.split())
    assert "numpy" in imported
    assert not imported & LOGGING


def test_a_policy_changes_the_working_directory_for_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Problems, outcomes and results went to another folder where theirs was relative."""
    monkeypatch.chdir(tmp_path)
    server = PolicyServer(Settings(policies_allowed="*"))
    assert isinstance(server.answer(Look(policy=f"{MOVES}+when=built")), Known)
    assert Path.cwd() == tmp_path
    assert isinstance(server.answer(Want(policy=f"{MOVES}+when=wants", view=SEEN)), Configurations)
    assert Path.cwd() == tmp_path


def test_a_policy_is_answered_for_though_the_working_directory_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (gone := tmp_path / "gone").mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert isinstance(PolicyServer(Settings()).answer(Look(policy="fifo")), Known)
