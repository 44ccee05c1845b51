"""`python -m services.estimator`."""

from services.estimator.build import build
from shared.runtime.process.main import run

if __name__ == "__main__":
    run("estimator", build)
