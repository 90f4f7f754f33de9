"""The entry of the command `holdfast`: Ctrl-C ends it quietly, also while it loads.

It is a package of its own: an import of `holdfast.cli` loads `holdfast` first, and an interrupt there would
show a traceback.
"""

import os
import signal
import sys

INTERRUPTED = 130
"""The exit status after Ctrl-C, as shells have it."""
SOON_S = 0.001


def main() -> int:
    """Load the command line and run it."""
    heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else a parent ignores it
    if heeded:
        signal.signal(signal.SIGINT, _leave)
        _repeat_lost_interrupts()
    from holdfast.cli import main as command

    try:
        if heeded:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            status = command()
        finally:
            if heeded:
                signal.signal(signal.SIGINT, _leave)  # Python's own end would show a traceback
    except KeyboardInterrupt:
        status = INTERRUPTED
    if status == INTERRUPTED:
        # Finalisers fail of objects that the interrupt broke off, as a loop that is half closed.
        sys.unraisablehook = lambda _: None
    return status


def _repeat_lost_interrupts() -> None:
    """Repeat an interrupt that Python has shown and dropped.

    It does so where no exception can go on: in a finaliser, or in the callback of a weak reference.
    """
    shown = sys.unraisablehook

    def show(unraisable: "sys.UnraisableHookArgs") -> None:
        if unraisable.exc_type is KeyboardInterrupt:
            signal.setitimer(signal.ITIMER_REAL, SOON_S)  # when this function has ended
        else:
            shown(unraisable)

    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    sys.unraisablehook = show


def _leave(*_: object) -> None:
    """End the process at once: nothing is open that could be closed."""
    os._exit(INTERRUPTED)
