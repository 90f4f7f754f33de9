"""Print results: as JSON, or in words."""

from __future__ import annotations

import argparse
import json
import math
import sys


def print_json(answer: object) -> None:
    """One JSON value on one line, so that several answers make JSON lines."""
    try:
        text = json.dumps(answer, ensure_ascii=False, allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(answer), ensure_ascii=False, allow_nan=False)
    print(text, flush=True)


def tell(options: argparse.Namespace, answer: object, words: str) -> int:
    """Print an answer, as JSON or in words; returns the exit status 0."""
    if options.json:
        print_json(answer)
    else:
        print(words, flush=True)
    return 0


def notice(words: str) -> None:
    """Print words beside the result, on stderr."""
    if sys.stderr is not None:
        print(f"holdfast: {words}", file=sys.stderr, flush=True)


def _finite(answer: object) -> object:
    """Replace numbers that JSON cannot express by null: readers refuse Python's words."""
    if isinstance(answer, dict):
        return {name: _finite(each) for name, each in answer.items()}
    if isinstance(answer, list | tuple):
        return [_finite(each) for each in answer]
    return None if isinstance(answer, float) and not math.isfinite(answer) else answer
