"""Ranking: terms, the order of passages, excerpts, summaries."""

from __future__ import annotations

import pytest

from examples.ranking import Index, opening_of, sentences_of, summarise, terms_of
from examples.shelf import find_place, list_files, read_passages, split_passages


def test_forms_of_a_word_are_one_term() -> None:
    assert len(set(terms_of("cancel cancels cancelled cancelling cancellation"))) == 1
    assert len(set(terms_of("process processes processing"))) == 1
    assert terms_of("status bus") == ["status", "bus"]


def test_identifiers_count_whole_and_by_their_parts() -> None:
    assert terms_of("wait_for HTTPServer") == ["wait_for", "wait", "httpserver", "http", "server"]


def test_stop_words_and_single_letters_are_no_terms_but_other_scripts_are() -> None:
    assert terms_of("What is the x of a __ in it?") == []
    assert terms_of("水 Überlauf") == ["水", "überlauf"]


def test_the_passage_with_more_of_the_words_comes_first() -> None:
    index = Index()
    index.add(split_passages("# Rain\nrain rain rain rain\n# Both\nrain and snow\n# Sun\nno weather\n", "w.md"))
    matches = index.search("snow and rain")
    assert [match.passage.title for match in matches] == ["Both", "Rain"]
    assert matches[0].words == ("snow", "rain")
    assert matches[1].words == ("rain",)
    assert matches[0].score > matches[1].score > 0


def test_a_rare_word_weighs_more_than_a_common_one() -> None:
    index = Index()
    index.add(split_passages("".join(f"# {n}\ncommon text here\n" for n in range(9)) + "# 9\nseldom text here\n", "w.md"))
    assert index.search("common seldom")[0].passage.title == "9"


def test_the_excerpt_starts_where_the_words_stand() -> None:
    index = Index()
    index.add(split_passages("# Long\n" + "filler\n" * 40 + "the needle\n" + "filler\n" * 40, "w.md"))
    match = index.search("needle")[0]
    assert match.line <= 42 < match.line + len(match.excerpt)
    assert "the needle" in match.excerpt
    assert len(match.excerpt) <= 8


def test_nothing_found_is_empty_and_a_query_without_words_is_refused() -> None:
    index = Index()
    assert index.search("anything") == []
    with pytest.raises(ValueError, match="no word to look for"):
        index.search("what is it?")


def test_a_package_is_searched_for_what_it_does() -> None:
    root = find_place("asyncio")
    index = Index()
    for path in list_files(root).files:
        index.add(read_passages(path, root))
    titles = [match.passage.title for match in index.search("wait for a future with a timeout")[:8]]
    assert "wait_for" in titles
    best = index.search("acquire a semaphore")[0]
    assert best.passage.source == "asyncio/locks.py"
    source = (root.parent / best.passage.source).read_text().split("\n")
    assert tuple(line.rstrip()[:160] for line in source[best.line - 1 : best.line - 1 + len(best.excerpt)]) == best.excerpt


def test_the_opening_is_the_first_sentence_of_what_a_passage_says() -> None:
    python, bare = split_passages('def f():\n    """Does a thing.\n\n    More. """\n\ndef g(): return 1\n', "a.py")
    assert opening_of(python) == "Does a thing."
    assert opening_of(bare) == "def g(): return 1"
    (section,) = split_passages("# Head\n\nSays this.\nAnd that.\n", "a.md")
    assert opening_of(section) == "Says this."
    (empty,) = split_passages("# Head\n", "a.md")
    assert opening_of(empty) == "Head"


def test_sentences_end_at_marks_and_blank_lines() -> None:
    text = 'One is\nhere. Is 3.5 two? "Three!" Four\n\nFive。Six'
    assert sentences_of(text) == ["One is here.", "Is 3.5 two?", '"Three!', "Four", "Five。", "Six"]


def test_a_summary_keeps_the_telling_sentences_in_their_order() -> None:
    filler = " ".join(f"{letter * 3} {letter * 4} {letter * 5}." for letter in "abdfghjk")
    text = f"The broker keeps the stream. {filler} A stream outlives the broker that keeps the stream."
    assert summarise(text) == "The broker keeps the stream. A stream outlives the broker that keeps the stream."
    assert summarise("Only this.") == "Only this."
    assert summarise(" ".join(f"Word{n} again." for n in range(100)), max_sentences=3).count("again") == 3


@pytest.mark.parametrize("text", ["", "  \n ", "... !!! ?"])
def test_a_text_without_words_has_no_summary(text: str) -> None:
    with pytest.raises(ValueError, match="no text to summarise"):
        summarise(text)
