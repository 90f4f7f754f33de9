"""Mutants of the Python layer of services; each names a test that must notice it.

python -m tests.kit.service.python_mutants            # a line of JSON: which were noticed
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy

from tests.kit import text_mutants
from tests.kit.native import Mutant

SERVICE = "src/holdfast/memory/service/"
UNIT = "tests/unit/service/"
THREADS, REENTRY, CALLS = UNIT + "test_threads.py", UNIT + "test_reentry.py", UNIT + "test_fields_methods.py"

MUTANTS = (
    Mutant(
        "exit-ends-the-thread",
        "a handler that raises SystemExit ends the thread that answers calls",
        SERVICE + "skeleton.py",
        "except BaseException as error:  # also SystemExit: this thread answers the calls after this one",
        "except Exception as error:",
        REENTRY + "::test_a_handler_that_wants_to_end_the_thread",
    ),
    Mutant(
        "thread-joins-itself",
        "a handler that closes its skeleton waits for itself",
        SERVICE + "skeleton.py",
        "if self._thread is not None and self._thread is not threading.current_thread():",
        "if self._thread is not None:",
        REENTRY + "::test_a_handler_that_closes_the_skeleton",
    ),
    Mutant(
        "no-grace",
        "a call that comes before its handler is refused",
        SERVICE + "skeleton.py",
        "max(0.0, self._grace_end - time.monotonic())",
        "0.0",
        REENTRY + "::test_a_handler_that_is_set_late_answers",
    ),
    Mutant(
        "field-without-validation",
        "a field stores what its validator refused or changed",
        SERVICE + "skeleton.py",
        "request = handler(request)",
        "handler(request)",
        CALLS + "::test_a_set_returns_the_value_that_is_stored",
    ),
    Mutant(
        "none-is-nan",
        "a validator that forgets its return stores nan",
        SERVICE + "elements.py",
        "if value is None:  # numpy would make it nan",
        "if False:",
        CALLS + "::test_none_is_not_a_number",
    ),
    Mutant(
        "restart-resets-fields",
        "the next provider writes the initial values over the last ones",
        SERVICE + "skeleton.py",
        "initial is not None and end.value is None",
        "initial is not None",
        CALLS + "::test_calls_without_a_provider",
    ),
    Mutant(
        "closed-is-misuse",
        "a thread that waits for samples gets Misuse when another one closes the subscription",
        SERVICE + "subscribing.py",
        "self._proxy_or_closed()  # another thread may have closed it meanwhile",
        "",
        THREADS + "::test_close_while_a_thread_waits_for_samples",
    ),
    Mutant(
        "handler-joins-itself",
        "a handler of samples that closes its subscription waits for itself",
        SERVICE + "subscribing.py",
        "if self._thread is not None and self._thread is not threading.current_thread():",
        "if self._thread is not None:",
        REENTRY + "::test_a_handler_of_samples_that_closes",
    ),
    Mutant(
        "close-keeps-the-subscription",
        "a closed subscription holds on to its samples' share",
        SERVICE + "subscribing.py",
        "self._proxy._core.unsubscribe(self._number)",
        "pass",
        REENTRY + "::test_a_handler_of_samples_that_closes",
    ),
    Mutant(
        "one-that-cannot-move-stops-all",
        "a subscription that cannot move leaves the others without samples",
        SERVICE + "proxy.py",
        "subscription._move(fresh)",
        "failures or subscription._move(fresh)",
        THREADS + "::test_a_subscription_that_cannot_move_leaves_the_others",
    ),
    Mutant(
        "executed-unsaid",
        "a call that timed out says that it did not run, although it may have",
        SERVICE + "proxy.py",
        'did not return in {timeout} s; it runs, or did run", None)',
        'did not return in {timeout} s; it runs, or did run", False)',
        CALLS + "::test_a_slow_handler_times_out_and_may_still_run",
    ),
    Mutant(
        "any-elements",
        "a proxy uses an instance that has other elements",
        SERVICE + "proxy.py",
        "if found == wanted:",
        "if found or wanted:",
        UNIT + "test_offers.py::test_another_declaration_is_refused_while_in_use",
    ),
    Mutant(
        "any-name",
        "an element hides a method of proxies",
        SERVICE + "declared.py",
        "for kind in (Service, Proxy, Skeleton)",
        "for kind in ()",
        UNIT + "test_offers.py::test_declarations_that_are_not_valid",
    ),
    Mutant(
        "any-size",
        "a size beyond the core's is declared",
        SERVICE + "elements.py",
        "if value.size > most:",
        "if False:",
        UNIT + "test_limits.py::test_the_largest_sizes",
    ),
    Mutant(
        "unheard-not-shown",
        "stats() shows another counter as unheard",
        SERVICE + "service_stats.py",
        "**{key: sums[key] for key in counters}",
        '**{key: sums[key if key != "sent" else "unheard"] for key in counters}',
        UNIT + "test_limits.py::test_counters_of_a_slot_wrap",
    ),
)


HANG = (
    "exit-ends-the-thread",
    "thread-joins-itself",
    "handler-joins-itself",
    "executed-unsaid",
)
"""Mutants whose tests end by their time limit: for `make nightly`."""


def run(mutants: Sequence[Mutant]) -> dict[str, bool]:
    """Run mutants in a process of their own; return which were noticed."""
    return text_mutants.run(__file__, mutants)


if __name__ == "__main__":
    assert numpy is not None  # loaded once, before the children
    sys.exit(text_mutants.main(MUTANTS))
