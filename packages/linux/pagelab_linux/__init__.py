"""A real Linux kernel with the mechanisms in it, built and run in a virtual machine: `pagelab linux`.

The kernel's parts, under GPL-2.0, are in the folder `kernel/`. This package fetches the kernel's source, builds it and
runs it. It knows no mechanism: what is built, set and measured is in `kernel/`.
"""

from pagelab._engine import PagelabError


class LinuxError(PagelabError):
    """The kernel cannot be had, built or run here, or what it did was wrong."""
