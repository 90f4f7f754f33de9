"""Copies between members: look at a directory, offer its files, replace another by them."""

from holdfast.ledger.copies.install import CHUNK, Install, file_crc, prefix_crc, require_file
from holdfast.ledger.copies.lives import is_survivor, next_life, request_survivor, withdraw_survivor
from holdfast.ledger.copies.offer import Item, journal_items, offer
from holdfast.ledger.copies.survey import Frame, StoreSurvey, survey

__all__ = [
    "CHUNK",
    "Frame",
    "Install",
    "Item",
    "StoreSurvey",
    "file_crc",
    "is_survivor",
    "journal_items",
    "next_life",
    "offer",
    "prefix_crc",
    "request_survivor",
    "require_file",
    "survey",
    "withdraw_survivor",
]
