"""The runner `process`: workers as processes of this machine, one for each GPU of the gang on the node."""
