"""The stack on one machine: its processes, its data folder, its signals."""
