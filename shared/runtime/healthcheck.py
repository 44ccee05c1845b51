"""Exit 0 when the service on this host says that it is ready: the health check of the containers."""

import os
import sys
import urllib.error
import urllib.request


def main() -> int:
    port = os.environ.get("HOPYARD_WEB_PORT", "8080")
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=3) as answer:
            return 0 if answer.status == 200 else 1  # noqa: PLR2004
    except (urllib.error.URLError, OSError):
        return 1


if __name__ == "__main__":
    sys.exit(main())
