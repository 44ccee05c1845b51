"""`python -m services.profiler`."""

from services.profiler.build import build
from shared.runtime.process.main import run

if __name__ == "__main__":
    run("profiler", build)
