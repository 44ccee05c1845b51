"""The process of policies begins with every planner, and again whenever a policy took too long."""

import subprocess
import sys

LOGGING = {"rich", "structlog"}
"""over a quarter of what its imports took"""


def test_a_policy_process_does_not_import_libraries_that_only_a_failure_needs() -> None:
    show = "import services.planner.work.policy_process, sys; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", show], check=True, capture_output=True, text=True)
    imported = set(ran.stdout.split())
    assert "numpy" in imported
    assert not imported & LOGGING
