"""The laboratory: runs, reports of them, experiments, benchmarks. Commands reach it; no service does."""
