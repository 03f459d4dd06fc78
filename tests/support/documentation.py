"""Code that the documentation shows, for tests that run it."""

from __future__ import annotations

import re
from pathlib import Path

_ROOT = Path(__file__).parents[2]


def block(page: str, words: str, language: str = "python") -> str:
    """The block of code on a page that holds these words."""
    blocks: list[str] = re.findall(rf"```{language}\n(.*?)```", (_ROOT / page).read_text(), re.DOTALL)
    return next(text for text in blocks if words in text)
