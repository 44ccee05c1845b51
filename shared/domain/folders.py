"""Names of folders, as users write them."""

import posixpath


def plain_name(folder: str) -> str:
    """The one name of an absolute path: POSIX lets two slashes at its beginning mean something else."""
    return posixpath.normpath(f"/{folder.lstrip('/')}")
