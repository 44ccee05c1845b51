"""The agent of a node: starts, stops and checkpoints jobs there, and reports on them."""
