"""Splits of the GPUs among jobs: categories, samples of them, the best split of one, the optimum. Pure."""
