"""Files of a data directory: read, publish, rebuild, check and copy them."""

from holdfast.ledger.files.compacted import ViewEntry, ViewFile
from holdfast.ledger.files.table import (
    RUN_ENTRIES,
    Publications,
    TableEntry,
    directory_incarnation,
    name_in,
    read_schemas,
    read_table,
    read_table_file,
    read_table_view,
    table_path,
    view_path,
)

__all__ = [
    "RUN_ENTRIES",
    "Publications",
    "TableEntry",
    "ViewEntry",
    "ViewFile",
    "directory_incarnation",
    "name_in",
    "read_schemas",
    "read_table",
    "read_table_file",
    "read_table_view",
    "table_path",
    "view_path",
]
