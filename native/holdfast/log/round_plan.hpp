// The order in which a round is written: the one place that says it. The core's writer and the simulated one
// (tests/kit/ledger/sim_store.py) both execute this list, so the storms of the simulation explore what production runs.
//
//   journal written ──► ledgers written ──► journal synced ──► reported durable
//
// The ledgers are copied while the disk works on the journal. Whatever of them a crash leaves beyond what the journal
// has is cut by the recovery. A ledger that cannot be written does not hold up the journal: it is reported behind the plan.
#pragma once

#include <array>
#include <string_view>

#include "holdfast/base/types.hpp"

namespace holdfast {

enum class RoundStep : u8 { journal_write, ledger_write, journal_sync };

inline constexpr std::array kRoundPlan = {RoundStep::journal_write, RoundStep::ledger_write,
                                          RoundStep::journal_sync};

constexpr std::string_view step_name(RoundStep step) {
    constexpr std::array<std::string_view, 3> kNames = {"journal_write", "ledger_write",
                                                        "journal_sync"};
    return kNames[static_cast<std::size_t>(step)];
}

}  // namespace holdfast
