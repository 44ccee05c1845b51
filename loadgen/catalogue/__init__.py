"""Public data on models, data sets, GPUs and servers, and the arithmetic that follows from it."""
