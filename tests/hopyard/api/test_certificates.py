"""Certificates are read only where they are needed: in new processes, which have not imported aiohttp."""

import subprocess
import sys
from pathlib import Path

import pytest

READ = """
import os, ssl, sys
from hopyard.api.certificates import needed_for
before = dict(os.environ)
with needed_for(sys.argv[1]):
    from aiohttp import connector
assert dict(os.environ) == before
print(connector._SSL_CONTEXT_VERIFIED.cert_store_stats() == ssl.create_default_context().cert_store_stats())
print(connector._SSL_CONTEXT_VERIFIED.cert_store_stats()["x509"])
"""


CHILD = """
import os
from hopyard.local import child
sys.argv = ["child", str(os.getppid()), "services.asks"]
child.main()
"""


def read(url: str) -> list[str]:
    ran = subprocess.run(
        [sys.executable, "-c", READ, url], capture_output=True, text=True, timeout=300, check=True
    )
    return ran.stdout.split()


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080", "http://localhost:1/x", "http://[::1]:80"])
def test_no_certificates_are_read_for_a_local_stack(url: str) -> None:
    assert read(url)[1] == "0"


@pytest.mark.parametrize(
    "url", ["https://localhost", "http://cluster.example:8080", "http://127.0.0.1.example"]
)
def test_the_system_s_certificates_are_read_for_a_remote_stack(url: str) -> None:
    """Plain HTTP may be redirected to what needs them."""
    assert read(url)[0] == "True"


def test_a_service_of_a_stack_reads_no_certificates(tmp_path: Path) -> None:
    """Its connection to NATS reads those that it needs, when it needs them."""
    (tmp_path / "services").mkdir()
    (tmp_path / "services" / "__init__.py").touch()
    (tmp_path / "services" / "asks.py").write_text(
        "import os\nfrom aiohttp import connector\n"
        "print(connector._SSL_CONTEXT_VERIFIED.cert_store_stats()['x509'])\n"
        "print(os.environ.get('SSL_CERT_FILE') == os.devnull)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}){CHILD}"],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert ran.stdout.split() == ["0", "False"]
