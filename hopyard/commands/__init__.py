"""The commands, one small file a group: their options and help. `hopyard.actions` does the work."""
