"""A real Linux kernel with the mechanisms in it, built and run in a virtual machine: `pagelab linux`.

The kernel's parts, under GPL-2.0, are in the folder `kernel/`. This package fetches the kernel's source, builds it and
runs it. It knows no mechanism: `kernel/` says what is built, set and measured.
"""

from pagelab._engine import PagelabError


class LinuxError(PagelabError):
    """The kernel cannot be fetched, built or run here, or its behaviour was wrong."""
