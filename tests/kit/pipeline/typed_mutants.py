"""Mutants of the decoder of typed values; each names a test that must notice it.

python -m tests.kit.pipeline.typed_mutants            # a line of JSON: which were noticed
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import fastavro
import google.protobuf
import msgspec
import pyarrow.compute
import pyspark.sql.datasource
import pyspark.sql.pandas.types

from tests.kit import text_mutants
from tests.kit.native import Mutant

VALUES = "src/holdfast/pipeline/source/typed_values.py"
TYPES = "src/holdfast/pipeline/source/avro_types.py"
TESTS = "tests/unit/pipeline/test_typed_values.py::test_"
HANGS_S = 20
"""The tests write files, which takes longer on a busy machine."""

MUTANTS = (
    Mutant(
        "newest-for-all",
        "each message is decoded by the newest schema, not by its own",
        VALUES,
        "return self._schemas[number]",
        "return self._schemas[-1]",
        TESTS + "versions_in_one_topic",
    ),
    Mutant(
        "oldest-names-the-columns",
        "the first schema of a topic names the columns",
        VALUES,
        "return Registered(known[-1]).definition.shape",
        "return Registered(known[0]).definition.shape",
        TESTS + "versions_in_one_topic",
    ),
    Mutant(
        "new-versions-unknown",
        "a version that was added since the first message is not found",
        VALUES,
        "if number is None or number >= len(self._schemas):",
        "if not self._schemas:",
        TESTS + "a_version_that_is_added_while_the_topic_is_read",
    ),
    Mutant(
        "plain-if-one-is",
        "values are decoded at once if one of their versions allows it",
        VALUES,
        "plain = headers.null_count == len(headers) and all(",
        "plain = headers.null_count == len(headers) and any(",
        TESTS + "plain_and_other_versions_together",
    ),
    Mutant(
        "bytes-left",
        "bytes behind a record are ignored",
        VALUES,
        "if (rest := len(data) - file.tell()) > 0:",
        "if (rest := len(data) - file.tell()) > 1 << 30:",
        TESTS + "a_value_that_does_not_fit",
    ),
    Mutant(
        "no-version-is-the-newest",
        "an Avro value without a version is decoded by the newest schema",
        VALUES,
        "if not data or not Registered(data).json:",
        "if not data:",
        TESTS + "a_value_that_does_not_fit",
    ),
    Mutant(
        "encrypted-is-decoded",
        "the bytes of an encrypted message are decoded",
        VALUES,
        "if encrypted:",
        "if False:",
        TESTS + "an_encrypted_value_is_not_decoded",
    ),
    Mutant(
        "damage-is-silent",
        "a value that does not fit is null in mode failfast",
        VALUES,
        "if faults and not permissive:",
        "if False:",
        TESTS + "a_value_that_does_not_fit",
    ),
    Mutant(
        "another-position",
        "an error names the position of the first row",
        VALUES,
        "faults[row] = self._words(positions[row].as_py(), number, error)",
        "faults[row] = self._words(positions[0].as_py(), number, error)",
        TESTS + "a_value_that_does_not_fit",
    ),
    Mutant(
        "strict-json",
        "numbers beyond JSON, which Python's clients write, are refused",
        VALUES,
        "return msgspec.convert(json.loads(data), kind)",
        "raise",
        TESTS + "json_without_a_version_and_beyond_json",
    ),
    Mutant(
        "any-field",
        "a field that no schema has is null",
        VALUES,
        "if unknown and found:",
        "if False:",
        TESTS + "several_topics",
    ),
    Mutant(
        "any-schemas",
        "topics with other schemas share the columns of the first one",
        VALUES,
        "if other != kind:",
        "if False:",
        TESTS + "several_topics",
    ),
    Mutant(
        "any-types",
        "a version whose types do not fit the column is decoded",
        VALUES,
        "if why:\n            raise ValueError(why)",
        "",
        TESTS + "versions_of_other_types",
    ),
    Mutant(
        "milliseconds",
        "milliseconds are taken for microseconds",
        TYPES,
        "return lambda found: found * MICROS_IN_MILLI",
        "return lambda found: found",
        TESTS + "all_types",
    ),
    Mutant(
        "narrow-union",
        "a union of int and long is the first of them",
        TYPES,
        "return Shape(wide), avro",
        "return shapes[0], avro",
        TESTS + "all_types",
    ),
    Mutant(
        "short-names",
        "a name without its namespace is not found",
        TYPES,
        'full = name if "." in name or not space else f"{space}.{name}"\n        full = full if',
        "full = name\n        full = full if",
        TESTS + "all_types",
    ),
    Mutant(
        "scale-forgotten",
        "decimals are decoded without their scale",
        TYPES,
        '"precision": precision, "scale": scale}',
        '"precision": precision, "scale": 0}',
        TESTS + "all_types",
    ),
    Mutant(
        "empty-elements",
        "a few bytes make an array of any length",
        TYPES,
        "if item.size_min == 0:  # a few bytes could claim any number of them",
        "if False:",
        TESTS + "hostile_definitions",
    ),
    Mutant(
        "any-number-of-parts",
        "a small definition makes a column of any number of parts",
        TYPES,
        "if parts > PARTS_MAX:",
        "if False:",
        TESTS + "hostile_definitions",
    ),
    Mutant(
        "itself",
        "a type that contains itself is not noticed",
        TYPES,
        "if full in self._open:",
        "if False:",
        TESTS + "schemas_that_become_no_columns",
    ),
)


def run(mutants: Sequence[Mutant]) -> dict[str, bool]:
    """Run mutants in a process of their own; return which were noticed."""
    return text_mutants.run(__file__, mutants)


if __name__ == "__main__":
    loaded = (fastavro, google.protobuf, msgspec, pyarrow, pyspark)
    assert all(loaded), "loaded once, before the children"
    sys.exit(text_mutants.main(MUTANTS, HANGS_S))
