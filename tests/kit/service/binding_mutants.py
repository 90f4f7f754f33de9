"""Mutants of a service's holds, parameters and bindings.

All are compiled into one extension, and chosen at run time. Each names the tests that must notice it.
"""

from __future__ import annotations

from tests.kit.native import Mutant

UNIT = "tests/unit/service/"
DAMAGE, LIMITS = UNIT + "test_damage.py", UNIT + "test_limits.py"
THREADS, REENTRY = UNIT + "test_threads.py", UNIT + "test_reentry.py"
HOLD, PROXY_HOLD = "holdfast/service/hold.hpp", "holdfast/service/proxy.hpp"
PROVIDER_HOLD, PARAMS = "holdfast/service/provider.hpp", "holdfast/service/params.hpp"
ROLE, SAMPLES = "bindings/service/role.cpp", "bindings/service/samples.cpp"
PROVIDER, PROXY = "bindings/service/provider.cpp", "bindings/service/proxy.cpp"
CALLING, RUNNING = "bindings/service/calling.cpp", "bindings/service/running.cpp"
VERDICTS, ELEMENTS = "bindings/service/verdicts.cpp", "bindings/service/elements.cpp"

MUTANTS = (
    Mutant(
        "overtaken-for-ever",
        "a newest sample that cannot be held is looked at without end",
        PROXY_HOLD,
        "if (result != Taking::overtaken || samples.newest() != number) return result;",
        "return result;",
        DAMAGE + "::test_a_newest_sample_that_cannot_be_held",
    ),
    Mutant(
        "used-up-places-wait",
        "a call waits for a place although the numbers of all are used up",
        CALLING,
        "if (probe && hold_.used_up(element_)) {",
        "if (false) {",
        LIMITS + "::test_the_last_call_number",
    ),
    Mutant(
        "unheard-not-counted",
        "a death without room for a notice leaves no trace",
        HOLD,
        "if (!notices_.post(me_, info.pid, info.since_ticks, application)) count(ServiceCount::unheard);",
        "notices_.post(me_, info.pid, info.since_ticks, application);",
        "tests/process/service/test_notices.py::test_notices_beyond_128_are_counted",
    ),
    Mutant(
        "own-log-is-busy",
        "an overwritten log of this proxy is taken for others that subscribe",
        VERDICTS,
        "if (result == Subscribing::busy && mine != 0)",
        "if (false)",
        DAMAGE + "::test_an_own_log_that_was_overwritten",
    ),
    Mutant(
        "length-believed",
        "a sample that is longer than its room is handed out",
        HOLD,
        "return static_cast<u32>(std::min<u64>(found, plan_.element(element).size));",
        "return found;",
        DAMAGE + "::test_a_sample_longer_than_its_element",
    ),
    Mutant(
        "request-length-believed",
        "a request that is longer than its room is copied",
        PROVIDER_HOLD,
        "std::min<u64>(length, plan_.element(call.element).request_size)",
        "u64{length}",
        DAMAGE + "::test_a_request_longer_than_its_room",
    ),
    Mutant(
        "data-writable",
        "a proxy can write into samples",
        PROXY_HOLD,
        "this->segment()->protect(plan_.data_offset(), plan_.size());",
        "",
        DAMAGE + "::test_a_proxy_maps_the_data_read_only",
    ),
    Mutant(
        "table-unsummed",
        "a damaged table of elements is believed",
        PARAMS,
        "table_crc(elements) != params.table_crc",
        "false",
        UNIT + "test_offers.py::test_damaged_memory_is_refused",
    ),
    Mutant(
        "epoch-stands-still",
        "an offer does not raise the epoch",
        PROVIDER_HOLD,
        "epoch + 1",
        "epoch",
        LIMITS + "::test_the_epoch_wraps",
    ),
    Mutant(
        "left-under-samples",
        "a closed proxy gives its slot up although the program looks at a sample",
        ROLE,
        "if (!self->closed || self->lent > 0 || self->busy > 0 || self->hold == nullptr) return;",
        "if (!self->closed || self->busy > 0 || self->hold == nullptr) return;",
        THREADS + "::test_views_end_in_another_thread",
    ),
    Mutant(
        "released-under-views",
        "the release of a sample ends its hold, although a view lives",
        SAMPLES,
        "if (self->exports > 0) self->stage = SampleStage::leaving;",
        "if (!(MUTANT) && self->exports > 0) self->stage = SampleStage::leaving;",
        THREADS + "::test_views_end_in_another_thread",
    ),
    Mutant(
        "published-under-views",
        "a loan is published although the program can write into it",
        SAMPLES,
        "if (loan->exports > 0) {",
        "if (false) {",
        UNIT + "test_events.py",
    ),
    Mutant(
        "number-closes-unseen",
        "the number of an element closes the role, and the call goes on",
        ROLE,
        "if (!usable(self)) return false;",
        "",
        REENTRY + "::test_a_number_that_closes_the_provider",
    ),
    Mutant(
        "count-closes-unseen",
        "the count of a take closes the proxy, and the take goes on",
        PROXY,
        "!usable(self) || !require_subscribed(self, element)",
        "!require_subscribed(self, element)",
        REENTRY + "::test_a_count_that_closes_the_proxy",
    ),
    Mutant(
        "answered-twice",
        "a call is answered twice",
        RUNNING,
        "if (!unanswered(self) || !usable(owner)) return nullptr;",
        "if (!usable(owner)) return nullptr;",
        DAMAGE + "::test_a_request_longer_than_its_room",
    ),
    Mutant(
        "dropped-without-an-answer",
        "a call that the program drops is never answered",
        RUNNING,
        "if (!self->answered) answer_dropped(self->owner, running(self));",
        "",
        DAMAGE + "::test_a_request_longer_than_its_room",
    ),
    Mutant(
        "loans-without-a-limit",
        "a program borrows samples beyond its loans",
        PROVIDER,
        "if (self->provider->loans(element) >= limit) {",
        "if (false) {",
        THREADS + "::test_dropped_loans_and_calls",
    ),
    Mutant(
        "any-notice",
        "a notice that does not exist is taken",
        PROVIDER,
        "if (place < 0 || place >= static_cast<Py_ssize_t>(kNotices)) {",
        "if (place < 0) {",
        DAMAGE + "::test_a_request_longer_than_its_room",
    ),
    Mutant(
        "name-without-an-end",
        "the name of an element fills its room",
        ELEMENTS,
        "if (static_cast<std::size_t>(size) >= room) {",
        "if (static_cast<std::size_t>(size) > room) {",
        LIMITS + "::test_the_longest_names",
    ),
    Mutant(
        "missed-uncounted",
        "samples that a subscriber passed over are not counted",
        PROXY,
        "hold_.count_missed(missed_in_all);",
        "",
        UNIT + "test_events.py",
    ),
)
