"""Experiments: which runs each one makes, and what its report says of them. One line each in `suite`."""
