"""`python -m services.agent`."""

from services.agent.build import build_standing
from shared.runtime.process.main import run

if __name__ == "__main__":
    run("agent", build_standing)
