// Named points of the store, which is written in Python and passes them by name.
#pragma once

#include "holdfast/base/points.hpp"

namespace holdfast::bindings {

HOLDFAST_POINTS(StorePoint, format_made, journal_made, journal_used, journal_dropped,
                snapshot_begin, snapshot_synced, snapshot_written, snapshot_renamed, snapshot_done,
                snapshot_dropped, trim_unlink, ledger_rewritten, recover_locked, recover_loaded,
                recover_cut, recover_truncated, recover_redo, recover_done, backup_copied,
                restore_copied, journal_recycled, ledger_switched, reserve_released,
                reserve_restored, recover_ledger);

}  // namespace holdfast::bindings
