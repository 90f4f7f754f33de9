"""The store of a broker: journal, ledgers, snapshots, recovery, acknowledgements.

A name's module is loaded on its first use: tasks of Spark read files, and need no store.
"""

from typing import TYPE_CHECKING

from holdfast.lazy import loader

if TYPE_CHECKING:
    from holdfast.ledger.acks import AckState, pack_bits
    from holdfast.ledger.closing import Closing
    from holdfast.ledger.layout import (
        FILE_HEADER,
        FORMAT,
        INCOMPLETE,
        LEDGERS,
        LIFE,
        LOCAL,
        LOCK,
        SNAPSHOTS,
        TOPICS,
        Extent,
        LedgerFile,
    )
    from holdfast.ledger.ledgers import LedgerInfo, LedgerTable
    from holdfast.ledger.recovery import require_no_strangers
    from holdfast.ledger.store import Files, NativeFiles, Recovered, Store, StoreStats
    from holdfast.ledger.store_options import StoreOptions, SyncMode, journal_missed
else:
    __getattr__ = loader(
        __name__,
        {
            "acks": (
                "AckState",
                "pack_bits",
            ),
            "closing": ("Closing",),
            "layout": (
                "FILE_HEADER",
                "FORMAT",
                "INCOMPLETE",
                "LEDGERS",
                "LIFE",
                "LOCAL",
                "LOCK",
                "LedgerFile",
                "SNAPSHOTS",
                "TOPICS",
                "Extent",
            ),
            "ledgers": (
                "LedgerInfo",
                "LedgerTable",
            ),
            "recovery": ("require_no_strangers",),
            "store": (
                "Files",
                "NativeFiles",
                "Recovered",
                "Store",
                "StoreStats",
            ),
            "store_options": (
                "StoreOptions",
                "SyncMode",
                "journal_missed",
            ),
        },
    )

__all__ = [
    "FILE_HEADER",
    "FORMAT",
    "INCOMPLETE",
    "LEDGERS",
    "LIFE",
    "LOCAL",
    "LOCK",
    "SNAPSHOTS",
    "TOPICS",
    "AckState",
    "Closing",
    "Extent",
    "Files",
    "LedgerFile",
    "LedgerInfo",
    "LedgerTable",
    "NativeFiles",
    "Recovered",
    "Store",
    "StoreOptions",
    "StoreStats",
    "SyncMode",
    "journal_missed",
    "pack_bits",
    "require_no_strangers",
]
