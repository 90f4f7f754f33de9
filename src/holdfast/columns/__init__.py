"""Entries as Arrow columns: read from a broker's files or over Arrow Flight.

Promises upward (the Flight process, Spark): rows exactly as they are stored. Needs from below: the tables and
ledgers of a data directory, and the core's decoder.

A name's module is loaded on its first use: the server's process needs tickets, and not Arrow.
"""

from typing import TYPE_CHECKING

from holdfast.lazy import loader

if TYPE_CHECKING:
    from holdfast.columns.address import Address
    from holdfast.columns.decoding import Decoding, Wish
    from holdfast.columns.files import (
        EntryReader,
        FilePlace,
        FileTopic,
        Place,
        TopicReader,
        open_place,
        topic_and_partition,
    )
    from holdfast.columns.open_chunks import Floor, OpenChunks, scan_for
    from holdfast.columns.schema import COLUMNS, EXTRA, require_columns, schema_text
    from holdfast.columns.tickets import (
        NEWEST,
        Among,
        AtTime,
        Chunks,
        Extent,
        Mark,
        OfTopic,
        OfVersions,
        Opened,
        Read,
        Trouble,
        Weighed,
        parsed,
        require_inside,
    )
else:
    __getattr__ = loader(
        __name__,
        {
            "address": ("Address",),
            "decoding": (
                "Decoding",
                "Wish",
            ),
            "files": (
                "EntryReader",
                "FilePlace",
                "FileTopic",
                "Place",
                "TopicReader",
                "open_place",
                "topic_and_partition",
            ),
            "open_chunks": (
                "Floor",
                "OpenChunks",
                "scan_for",
            ),
            "schema": (
                "COLUMNS",
                "EXTRA",
                "require_columns",
                "schema_text",
            ),
            "tickets": (
                *("NEWEST", "Among", "AtTime", "Chunks", "Extent", "Mark", "OfTopic"),
                *("OfVersions", "Opened", "Read", "Trouble", "Weighed", "parsed", "require_inside"),
            ),
        },
    )

__all__ = [
    "COLUMNS",
    "EXTRA",
    "NEWEST",
    "Address",
    "Among",
    "AtTime",
    "Chunks",
    "Decoding",
    "EntryReader",
    "Extent",
    "FilePlace",
    "FileTopic",
    "Floor",
    "Mark",
    "OfTopic",
    "OfVersions",
    "OpenChunks",
    "Opened",
    "Place",
    "Read",
    "TopicReader",
    "Trouble",
    "Weighed",
    "Wish",
    "open_place",
    "parsed",
    "require_columns",
    "require_inside",
    "scan_for",
    "schema_text",
    "topic_and_partition",
]
