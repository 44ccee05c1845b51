"""`python -m services.monitor`."""

from services.monitor.build import build
from shared.runtime.process.main import run

if __name__ == "__main__":
    run("monitor", build)
