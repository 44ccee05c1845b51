"""Ways to split GPUs among jobs: every one, a sample, the best by a market, the exact optimum. Pure."""
