"""Jobs that take turns on one GPU: whose turn it is, and what is done when a worker does not give it back."""
