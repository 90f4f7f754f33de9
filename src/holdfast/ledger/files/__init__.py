"""Files of a data directory: read, publish, rebuild, check and copy them."""

from holdfast.ledger.files.compacted import ViewEntry, ViewFile, ViewPlace
from holdfast.ledger.files.table import (
    RUN_ENTRIES,
    Publications,
    TableEntry,
    TopicTable,
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
    "TopicTable",
    "ViewEntry",
    "ViewFile",
    "ViewPlace",
    "directory_incarnation",
    "name_in",
    "read_schemas",
    "read_table",
    "read_table_file",
    "read_table_view",
    "table_path",
    "view_path",
]
