"""`python -m services.admission`."""

from services.admission.build import build
from shared.runtime.process.main import run

if __name__ == "__main__":
    run("admission", build)
