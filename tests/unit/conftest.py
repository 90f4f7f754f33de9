"""Fixtures of every test in this folder."""

from tests.kit.memory import shared_path as shared_path
from tests.kit.memory import tmp_path as tmp_path
