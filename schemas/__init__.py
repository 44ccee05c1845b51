"""Every message on the bus, every HTTP body and every file format, as msgspec structs.

Nothing here does I/O or decides. Imports msgspec, and nothing else of the project.
"""
