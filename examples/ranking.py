"""Ranks passages by BM25 and sentences by how common their terms are."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from .shelf import Passage

_SATURATION = 1.2
_LENGTH_WEIGHT = 0.75
_TITLE_WEIGHT = 3
_EXCERPT_LINES = 8
_WORD = re.compile(r"\w+")
_PART = re.compile(r"[^\W\d_]?[^\W\d_A-Z]+|[A-Z]+(?![^\W\d_A-Z])|\d+")
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+|(?<=[。！？])\s*|\n\s*\n")
_DOCSTRING = re.compile(r'(?s)"""(.+?)(?:"""|$)')
_SUMMARY_SHARE = 0.2
_ENDING = re.compile(r"(?<=[a-z]{3})(?:ations?|ions?|ings?|ed|es|(?<![su])s|e)$")
_DOUBLED = re.compile(r"([b-df-hj-np-tv-z])\1$")
_STOP_WORDS = frozenset(
    _WORD.findall(
        "a about all also an and any are as at be been but by can do does for from had has have how i if in into is it its me"
        " more no not of on one or other our so some such than that the their them then there these they this to was we were"
        " what when where which who why will with would you your"
    )
)


@dataclass(frozen=True, slots=True)
class Match:
    """A passage that was found; `line` and `excerpt` are its part that says most, `words` those of the query in it."""

    passage: Passage
    score: float
    words: tuple[str, ...]
    line: int
    excerpt: tuple[str, ...]


def terms_of(text: str) -> list[str]:
    """The terms of a text: words as stems in lower case, identifiers also by their parts, stop words left out."""
    terms: list[str] = []
    for word in _WORD.findall(text):
        parts = _PART.findall(word)
        terms += filter(None, map(_stem, [word, *parts] if len(parts) > 1 else [word]))
    return terms


def wanted_terms(query: str) -> dict[str, str]:
    """The terms of a query, each with the word that it came from; raises ValueError where there is none."""
    wanted: dict[str, str] = {}
    for word in _WORD.findall(query):
        for term in terms_of(word):
            wanted.setdefault(term, word)
    if not wanted:
        raise ValueError("There is no word to look for in the request.")
    return wanted


@lru_cache(maxsize=100_000)
def _stem(word: str) -> str:
    """One form for `cancels`, `cancelled`, `cancelling` and `cancellation`; empty for what is no term."""
    word = word.casefold().strip("_")
    if word in _STOP_WORDS or (len(word) == 1 and word.isascii()):
        return ""
    return _DOUBLED.sub(r"\1", _ENDING.sub("", word))


class Index:
    """Responsible for the passages that were read, and for finding those that a query means (BM25)."""

    def __init__(self) -> None:
        self._passages: list[Passage] = []
        self._lengths: list[int] = []
        self._postings: dict[str, list[tuple[int, int]]] = {}

    def __repr__(self) -> str:
        return f"<Index passages={len(self._passages)} terms={len(self._postings)}>"

    def __len__(self) -> int:
        return len(self._passages)

    def add(self, passages: Iterable[Passage]) -> None:
        """Takes passages in; a term in a title counts as several in the text."""
        for passage in passages:
            counts = Counter(terms_of("\n".join(passage.lines)))
            self._lengths.append(counts.total())
            for term in terms_of(passage.title):
                counts[term] += _TITLE_WEIGHT
            for term, count in counts.items():
                self._postings.setdefault(term, []).append((len(self._passages), count))
            self._passages.append(passage)

    def search(self, query: str) -> list[Match]:
        """All passages with a term of the query, best first; raises ValueError for a query without any term."""
        wanted = wanted_terms(query)
        mean_length = sum(self._lengths) / len(self._lengths) if self._lengths else 1.0
        scores: dict[int, float] = {}
        for term in wanted:
            postings = self._postings.get(term, ())
            rarity = math.log(1 + (len(self) - len(postings) + 0.5) / (len(postings) + 0.5))
            for number, count in postings:
                norm = _SATURATION * (1 - _LENGTH_WEIGHT + _LENGTH_WEIGHT * self._lengths[number] / mean_length)
                scores[number] = scores.get(number, 0.0) + rarity * count * (_SATURATION + 1) / (count + norm)
        matches = [_match(self._passages[number], score, wanted) for number, score in scores.items()]
        return sorted(matches, key=lambda match: (-match.score, match.passage.source, match.passage.line))


def _match(passage: Passage, score: float, wanted: Mapping[str, str]) -> Match:
    found = [set(wanted).intersection(terms_of(line)) for line in passage.lines]
    held = set(terms_of(passage.title)).union(*found)
    # the window with the most distinct terms, the earliest of several
    best = max(
        range(len(passage.lines)),
        key=lambda at: (len(set[str]().union(*found[at : at + _EXCERPT_LINES])), bool(found[at]), -at),
    )
    excerpt = [line.rstrip()[:160] for line in passage.lines[best : best + _EXCERPT_LINES]]
    while len(excerpt) > 1 and not excerpt[-1]:
        excerpt.pop()
    words = tuple(dict.fromkeys(word for term, word in wanted.items() if term in held))
    share = len(held.intersection(wanted)) / len(wanted)
    return Match(passage, score * math.sqrt(share), words, passage.line + best, tuple(excerpt))


def sentences_of(text: str) -> list[str]:
    """The sentences of a text, each on one line; a blank line ends one too."""
    return [sentence for part in _SENTENCE_END.split(text) if (sentence := " ".join(part.split()))]


def opening_of(passage: Passage) -> str:
    """The first sentence of a passage: of its docstring in Python, behind its heading in Markdown."""
    text = "\n".join(passage.lines)
    if passage.language == "python":
        documented = _DOCSTRING.search(text)
        text = documented[1] if documented else passage.lines[0]
    elif passage.lines[0].startswith("#"):
        text = "\n".join(passage.lines[1:])
    return next(iter(sentences_of(text)), passage.title).lstrip("+*-> ")[:300]


def summarise(text: str, max_sentences: int = 5) -> str:
    """The sentences whose terms are most common in the text, a fifth of all and at most `max_sentences`, in their order.

    Raises ValueError for a text without words.
    """
    sentences = list(dict.fromkeys(sentences_of(text)))
    terms = [terms_of(sentence) for sentence in sentences]
    frequency = Counter(term for found in terms for term in found)
    if not frequency:
        raise ValueError("There is no text to summarise.")
    count = max(1, min(max_sentences, math.ceil(len(sentences) * _SUMMARY_SHARE)))

    def weight(number: int) -> float:
        # by the root of the length: neither headings nor the longest sentence win for their length alone
        distinct = set(terms[number])
        return sum(frequency[term] for term in distinct) / math.sqrt(len(distinct) + 4)

    chosen = sorted(sorted(range(len(sentences)), key=lambda number: (-weight(number), number))[:count])
    return " ".join(sentences[number] for number in chosen)
