"""`python -m services.placer`."""

from services.placer.build import build
from shared.runtime.process.main import run

if __name__ == "__main__":
    run("placer", build)
