"""Every message on the bus, every HTTP body and every file format, as msgspec structs.

Nothing here acts: no I/O, no decisions. May import msgspec and nothing of the project.
"""
