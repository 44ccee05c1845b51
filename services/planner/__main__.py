"""`python -m services.planner`."""

from services.planner.build import build
from shared.runtime.process.main import run

if __name__ == "__main__":
    run("planner", build)
