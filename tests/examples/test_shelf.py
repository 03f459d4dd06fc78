"""Finding and reading files: places, bounds, files that cannot be read, passages with their lines."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from examples.shelf import (
    UnreadableFileError,
    Wish,
    find_place,
    list_files,
    parse_wish,
    prose_of,
    read_passages,
    read_text,
    split_passages,
)


@pytest.mark.parametrize(
    ("message", "wanted", "place"),
    [
        ("timeouts in asyncio", "timeouts", "asyncio"),
        ("errors in transports in asyncio", "errors in transports", "asyncio"),
        ("  how\nit works\nin  ./docs ?\n", "how\nit works", "./docs"),
        ('rain in "a folder in spring"', "rain", "a folder in spring"),
        ("rain in `/srv/notes`.", "rain", "/srv/notes"),
        ("rain in notes.txt", "rain", "notes.txt"),
    ],
)
def test_a_wish_names_what_and_where(message: str, wanted: str, place: str) -> None:
    assert parse_wish(message) == Wish(wanted, place)


@pytest.mark.parametrize("message", ["", "asyncio", "in asyncio", "timeouts in", "timeouts inside asyncio"])
def test_a_wish_without_one_half_is_refused(message: str) -> None:
    with pytest.raises(ValueError, match="Say what to look for and where"):
        parse_wish(message)


def test_a_package_is_found_by_name_and_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "wsgiref", raising=False)  # another test may have imported it
    for name, end in [("wsgiref", "wsgiref"), ("wsgiref.handlers", "wsgiref/handlers.py"), ("textwrap", "textwrap.py")]:
        assert find_place(name).as_posix().endswith(end)
    assert "wsgiref" not in sys.modules


def test_a_path_is_found_by_its_look_and_a_bare_folder_after_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "email").mkdir()
    monkeypatch.chdir(tmp_path)
    assert find_place("notes") == find_place("./notes") == tmp_path / "notes"
    assert find_place("./email") == tmp_path / "email"
    assert find_place("email") != tmp_path / "email"


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        ("no_such_package", "There is no package 'no_such_package'"),
        ("email.no_such_module", "There is no package 'email.no_such_module'"),
        ("textwrap.deeper", "There is no package"),
        ("sys", "There is no package 'sys' with source files"),
        ("/no/such/folder", "There is no folder or file '/no/such/folder'"),
        ("/" + "x" * 5000, "cannot be a place"),
        ("~nobody-of-this-name/x", "cannot be a place"),
        ("./a\0b", "There is no folder|cannot be a place"),
    ],
)
def test_a_place_that_is_not_there_is_refused_in_a_sentence(place: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        find_place(place)


def test_listing_keeps_to_kinds_order_and_bound(tmp_path: Path) -> None:
    for name in ["b.md", "a.txt", "c.py", "d.rst", "e.bin", ".hidden.md", "sub/a.py", "__pycache__/x.py", ".git/y.md"]:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("text")
    (tmp_path / "loop").symlink_to(tmp_path, target_is_directory=True)
    listing = list_files(tmp_path)
    assert [path.relative_to(tmp_path).as_posix() for path in listing.files] == ["a.txt", "b.md", "c.py", "d.rst", "sub/a.py"]
    assert listing.left_out == 0
    bounded = list_files(tmp_path, max_files=2)
    assert [path.name for path in bounded.files] == ["a.txt", "b.md"]
    assert bounded.left_out == 3


def test_one_file_is_a_place_and_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# A")
    (tmp_path / "a.bin").write_bytes(b"\0")
    assert list_files(tmp_path / "a.md").files == [tmp_path / "a.md"]
    with pytest.raises(ValueError, match=r"'a\.bin' is none of the files that are read"):
        list_files(tmp_path / "a.bin")


def test_files_that_cannot_be_read_give_their_reason(tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes("Größe".encode("latin-1"))
    (tmp_path / "large.txt").write_bytes(b"x" * 101)
    (tmp_path / "fits.txt").write_bytes("\ufeffgrün".encode())
    (tmp_path / "dangling.txt").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe.txt")
    assert read_text(tmp_path / "fits.txt", max_bytes=100) == "grün"
    for name, reason in [
        ("latin.txt", "not UTF-8"),
        ("large.txt", "too large"),
        ("dangling.txt", "unreadable"),
        ("pipe.txt", "unreadable"),
        ("absent.txt", "unreadable"),
    ]:
        with pytest.raises(UnreadableFileError, match=f"^{reason}$"):
            read_text(tmp_path / name, max_bytes=100)


MODULE = '''"""Module."""
import os

@decorated
async def first():
    """First."""

class Box:
    """A box."""
    size = 1

    def open(self):
        return os

    def shut(self): ...
    colour = 2

LAST = 3
'''


def test_python_is_cut_into_functions_methods_and_what_stands_between() -> None:
    passages = split_passages(MODULE, "pkg/module.py")
    assert [(p.line, p.title) for p in passages] == [
        (1, "module.py"), (4, "first"), (8, "Box"), (12, "Box.open"), (15, "Box.shut"), (16, "Box"), (17, "module.py"),
    ]  # fmt: skip
    assert passages[1].lines == ["@decorated", "async def first():", '    """First."""']
    assert {p.language for p in passages} == {"python"}


def test_python_that_does_not_parse_is_read_as_text() -> None:
    assert [p.line for p in split_passages("def broken(:\n    a\n    b\n\nmore\n", "x.py")] == [1, 5]
    assert split_passages("a = '\0'\n", "x.py")[0].title == "a = '\0'"


def test_every_line_with_text_of_a_package_is_in_one_passage() -> None:
    root = find_place("email")
    files = list_files(root).files
    assert len(files) > 15
    for path in files:
        covered: list[int] = []
        for passage in read_passages(path, root):
            assert passage.source == f"email/{path.relative_to(root).as_posix()}"
            covered += range(passage.line, passage.line + len(passage.lines))
        assert len(covered) == len(set(covered))
        lines = path.read_text().split("\n")
        assert {number for number, line in enumerate(lines, 1) if line.strip()} <= set(covered)


def test_markdown_is_cut_at_headings_outside_of_code() -> None:
    text = "intro\n\n# One #\nbody\n```sh\n# no heading\n```\n## Two\n\n~~~\n```\n# still code\n~~~\n# Three\n"
    assert [(p.line, p.title) for p in split_passages(text, "a.md")] == [(1, ""), (3, "One"), (8, "Two"), (14, "Three")]


def test_text_is_cut_at_blank_lines_and_short_pieces_join_the_next() -> None:
    text = "Title\n\nOne line.\nTwo.\nThree.\n\n\nA\nB\nC\n\nEnd"
    passages = split_passages(text, "a.txt")
    assert [(p.line, list(p.lines)) for p in passages] == [
        (1, ["Title", "", "One line.", "Two.", "Three."]),
        (8, ["A", "B", "C"]),
        (12, ["End"]),
    ]
    assert split_passages("", "a.txt") == split_passages("\n \n", "a.md") == split_passages("", "a.py") == []


def test_prose_is_what_is_written_for_people() -> None:
    assert prose_of(MODULE, ".py") == "Module.\n\nFirst.\n\nA box."
    assert prose_of("def broken(", ".py") == "def broken("
    assert prose_of("# Head\nSaid.\n```\ncode\n```\nMore.", ".md") == "Said.\nMore."
    assert prose_of("# plain", ".txt") == "# plain"
