"""The command line: noun, then verb; results on stdout, errors on stderr.

Exit status: 0 success, 1 a failure or a fault that was found, 2 wrong usage, 130 after Ctrl-C.
"""

from holdfast.cli.entry import main

__all__ = ["main"]
