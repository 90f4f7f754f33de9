"""Which conditions a replay refuses before it plans anything."""

from __future__ import annotations

import pytest

from holdfast.errors import Misuse
from holdfast.pipeline.replay import require_lasting


@pytest.mark.parametrize(
    "where",
    [
        "publishTime < current_timestamp()",
        "rand() < 0.5",
        "key = uuid()",
        "publishTime > now() - INTERVAL 1 DAY",
        "date = curdate()",
        "date = CURRENT_DATE",
        "publishTime < /* as of */ localtimestamp",
        "key IN (SELECT key FROM VALUES ('k1') AS t(key))",
        "length(key) > 1 AND (unix_timestamp() > 0 OR key = 'x')",
    ],
)
def test_a_condition_that_selects_other_rows_each_time(where: str) -> None:
    with pytest.raises(Misuse, match="selects other rows each time"):
        require_lasting(where)


def test_words_in_texts_and_comments_are_not_functions() -> None:
    require_lasting("key = 'now' OR key = 'it\\'s rand()' -- select\n OR unix_timestamp(date) > 5 /* uuid */")
