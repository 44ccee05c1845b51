"""The part of a gang on one node, as a pure state machine: its messages, observations and end."""
