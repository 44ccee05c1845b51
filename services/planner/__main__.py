"""`python -m services.planner`. Its process of policies imports this too, and needs nothing of it."""

if __name__ == "__main__":
    from services.planner.build import build
    from shared.runtime.process.main import run

    run("planner", build)
