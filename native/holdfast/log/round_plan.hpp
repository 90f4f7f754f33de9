// The order in which a round is written, defined only here. The core's writer and the simulated one
// (tests/kit/ledger/sim_store.py) both execute this list. So the storms of the simulation explore
// the order of production.
//
//   journal written ──► ledgers written ──► journal synced ──► reported durable
//
// The ledgers are copied while the disk works on the journal. After a crash, recovery cuts the
// bytes of ledgers that the journal does not have. A ledger that cannot be written does not hold up
// the journal: it is reported behind the plan.
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
