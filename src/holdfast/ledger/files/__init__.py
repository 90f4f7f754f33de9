"""Files of a data directory: read, publish, rebuild, check and copy them."""

from holdfast.ledger.files.table import (
    RUN_ENTRIES,
    Publications,
    TableEntry,
    directory_incarnation,
    name_in,
    read_schemas,
    read_table,
    read_table_file,
    table_path,
    view_path,
)

__all__ = [
    "RUN_ENTRIES",
    "Publications",
    "TableEntry",
    "directory_incarnation",
    "name_in",
    "read_schemas",
    "read_table",
    "read_table_file",
    "table_path",
    "view_path",
]
