"""Where text may be cut so that it still reads well; never inside a grapheme."""

from __future__ import annotations

import re
import unicodedata
from enum import StrEnum

from semantic_text_splitter import MarkdownSplitter, TextSplitter

from skillstream_schemas.limits import utf8_length


class Boundary(StrEnum):
    """The places at which merged chunks end."""

    NONE = "none"
    WORD = "word"
    SENTENCE = "sentence"
    PARAGRAPH = "paragraph"
    MARKDOWN = "markdown"


_ENDS = {
    Boundary.WORD: re.compile(r"\s+"),
    Boundary.SENTENCE: re.compile(r"[.!?…]+[\"'”’»)\]]*\s+|[。！？]+[”’」』）]*|\n+"),
    Boundary.PARAGRAPH: re.compile(r"\n[^\S\n]*\n+"),
}
_LOOKAHEAD = 256
"""Code points behind the limit that the splitter sees, so that it knows whether a grapheme or a word goes on there."""
_JOINING = frozenset("\u0e33\u0eb3\u200c\u200d\uff9e\uff9f\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff") | frozenset(
    map(chr, range(0xE0020, 0xE0080))
)
"""What goes on a grapheme (UAX 29: Extend, SpacingMark, ZWJ) without being of the category mark."""
_FENCE = re.compile(r"[ ]{0,3}(`{3,}|~{3,})")


def last_boundary(text: str, boundary: Boundary) -> int:
    """How many code points of `text` stand before its last boundary; 0 where it has none."""
    if boundary is Boundary.NONE:
        return len(text)
    if boundary is Boundary.MARKDOWN:
        return _last_markdown_block(text)
    end = 0
    for found in _ENDS[boundary].finditer(text):
        if _may_cut(text, found.end()):
            end = found.end()
    return end


def split(text: str, limit_bytes: int, boundary: Boundary = Boundary.NONE) -> list[str]:
    """Cuts text into pieces of at most `limit_bytes` UTF-8 bytes, at the largest natural boundary that fits.

    The pieces joined are the text. A single grapheme over the limit is cut between code points.
    """
    if len(text) * 4 <= limit_bytes or utf8_length(text) <= limit_bytes:  # a code point has four bytes at most
        return [text]
    kind = MarkdownSplitter if boundary is Boundary.MARKDOWN else TextSplitter
    splitter = kind.from_callback(utf8_length, limit_bytes, trim=False)
    pieces: list[str] = []
    start = 0
    while start < len(text):
        window = _window(text, start, limit_bytes)
        chunks = splitter.chunks(window)
        if start + len(window) < len(text):
            del chunks[1:]
        pieces += chunks
        start += sum(map(len, chunks))
    return pieces


def _window(text: str, start: int, limit_bytes: int) -> str:
    """What the splitter looks at to find one piece: the time that it takes grows with the square of a long text."""
    ahead = text[start : start + limit_bytes + _LOOKAHEAD]
    size_bytes = limit_bytes + 4 * _LOOKAHEAD  # a code point has four bytes at most
    return ahead if ahead.isascii() else ahead.encode()[:size_bytes].decode(errors="ignore")


def _may_cut(text: str, end: int) -> bool:
    """False between CR and LF, and before what joins the character before it."""
    if end == len(text):
        return not text.endswith("\r")
    return unicodedata.category(text[end])[0] != "M" and text[end] not in _JOINING


def _last_markdown_block(text: str) -> int:
    end = place = 0
    fence = ""
    for line in text.splitlines(keepends=True):
        place += len(line)
        if not line.endswith("\n"):
            break
        found = _FENCE.match(line)
        if fence:
            if found and found[1].startswith(fence):
                fence, end = "", place
        elif found:
            fence = found[1]
        elif not line.strip() or line.startswith("#"):
            end = place
    return end
