"""The command line: noun, then verb; results on stdout, errors on stderr.

Exit status: 0 done, 1 it could not be done or something is wrong, 2 wrong usage.
"""

from holdfast.cli.entry import main

__all__ = ["main"]
