"""Finds text, Markdown and Python files and cuts them into passages that can be cited by file and line."""

from __future__ import annotations

import ast
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.machinery import PathFinder
from pathlib import Path

SUFFIXES = {".py": "python", ".md": "markdown", ".rst": "rst", ".txt": "text"}
"""File name endings that are read, with the language named at excerpts."""
MAX_FILES = 2000
MAX_FILE_BYTES = 512 * 1024
_SKIPPED_FOLDERS = {"__pycache__", "node_modules", "site-packages"}
_QUOTED_PLACE = re.compile(r"""(?s)(.+)\sin\s+(["'`])(.+?)\2[\s.?!]*""")
_LAST_IN = re.compile(r"(?s)(.+)\sin\s+(\S.*?)[\s?!]*")
_HEADING = re.compile(r"#{1,6}\s+(.+?)[\s#]*")
_FENCE = re.compile(r"\s{0,3}(```+|~~~+)")
_PARAGRAPH_LINES = 3

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True, slots=True)
class Wish:
    """What to look for, and the folder, file or package to look in."""

    wanted: str
    place: str


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a file that says one thing; `line` is the number of its first line, `title` a name or heading."""

    source: str
    line: int
    title: str
    lines: Sequence[str]
    language: str


@dataclass(slots=True)
class Listing:
    """The files below `root`; `left_out` counts those beyond the bound, `skipped` those passed over, by reason."""

    root: Path
    files: list[Path] = field(default_factory=list)
    left_out: int = 0
    skipped: Counter[str] = field(default_factory=Counter)


class UnreadableFileError(Exception):
    """A file is passed over; its text is the reason."""


def parse_wish(message: str) -> Wish:
    """Reads `<what to look for> in <folder, file or package>`, where the last `in` counts and quotes may hold the place.

    Raises ValueError where a half is missing.
    """
    text = message.strip()
    if quoted := _QUOTED_PLACE.fullmatch(text):
        return Wish(quoted[1].strip(), quoted[3].strip())
    if found := _LAST_IN.fullmatch(text):
        return Wish(found[1].strip(), found[2].strip())
    raise ValueError("Say what to look for and where: '<what to look for> in <folder or package name>'.")


def find_place(place: str) -> Path:
    """The folder or file that `place` means; nothing is imported.

    With a slash, a leading dot or a tilde it is a path; a bare name is an importable package first, then a path.
    Raises ValueError with a sentence where there is neither.
    """
    is_path = "/" in place or os.sep in place or place.startswith((".", "~"))
    try:
        path = Path(place).expanduser()
        if not is_path and (package := _find_package(place)):
            return package
        if path.exists():
            return path.resolve()
    except (OSError, RuntimeError, ValueError) as error:  # a name too long, a home that nobody has, a null byte
        raise ValueError(f"{place[:200]!r} cannot be a place: {error}") from None
    if is_path:
        raise ValueError(f"There is no folder or file {place[:200]!r}.")
    raise ValueError(f"There is no package {place[:200]!r} with source files here, and no folder of that name.")


def list_files(root: Path, max_files: int = MAX_FILES) -> Listing:
    """Lists the files to read below `root` in a fixed order, at most `max_files`; links to folders are not followed."""
    listing = Listing(root)
    if not root.is_dir():
        if root.suffix not in SUFFIXES:
            raise ValueError(f"{root.name!r} is none of the files that are read: {', '.join(SUFFIXES)}.")
        listing.files.append(root)
        return listing

    def unreadable(_: OSError) -> None:
        listing.skipped["unreadable folder"] += 1

    for folder, names, files in os.walk(root, onerror=unreadable):
        names[:] = sorted(name for name in names if name not in _SKIPPED_FOLDERS and not name.startswith("."))
        for name in sorted(files):
            if os.path.splitext(name)[1] not in SUFFIXES or name.startswith("."):
                continue
            if len(listing.files) < max_files:
                listing.files.append(Path(folder, name))
            else:
                listing.left_out += 1
    return listing


def read_text(path: Path, max_bytes: int = MAX_FILE_BYTES) -> str:
    """The text of a file; raises UnreadableFileError for one that is too large, not UTF-8, no regular file or unreadable."""
    try:
        if not path.is_file():  # a pipe would block the reader
            raise UnreadableFileError("unreadable")
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
    except OSError:
        raise UnreadableFileError("unreadable") from None
    if len(content) > max_bytes:
        raise UnreadableFileError("too large")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UnreadableFileError("not UTF-8") from None


def read_passages(path: Path, root: Path) -> list[Passage]:
    """The passages of a file, its name as seen from the folder that holds `root`; raises UnreadableFileError."""
    return split_passages(read_text(path), path.relative_to(root.parent).as_posix())


def split_passages(text: str, source: str) -> list[Passage]:
    """Cuts a text where its kind, told by the ending of `source`, has its joints.

    Python: functions, methods and what stands between; Markdown: sections; else: paragraphs.
    """
    lines = re.split(r"\r\n|\r|\n", text)  # splitlines() also cuts at form feeds, which editors do not count
    suffix = os.path.splitext(source)[1]
    spans: Iterable[tuple[int, int, str]]
    match suffix:
        case ".py":
            spans = _python_spans(text, lines, os.path.basename(source))
        case ".md":
            spans = _section_spans(lines)
        case _:
            spans = _paragraph_spans(lines)
    language = SUFFIXES.get(suffix, "text")
    return [Passage(source, start, title, lines[start - 1 : end], language) for start, end, title in spans]


def prose_of(text: str, suffix: str) -> str:
    """What is written for people in a text: the docstrings of Python, Markdown without headings and code."""
    if suffix == ".py":
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            return text
        documented = (node for node in ast.walk(tree) if isinstance(node, Definition | ast.Module))
        return "\n\n".join(doc for node in documented if (doc := ast.get_docstring(node)))
    if suffix == ".md":
        return "\n".join(line for line, is_code in _marked(text.split("\n")) if not is_code and not _HEADING.fullmatch(line))
    return text


def _find_package(name: str) -> Path | None:
    parts = name.split(".")
    if not all(part.isidentifier() for part in parts):
        return None
    folders: Sequence[str] | None = None
    spec = None
    for depth in range(len(parts)):  # PathFinder reads folders only; importlib.util would import the parents
        spec = PathFinder.find_spec(".".join(parts[: depth + 1]), folders)
        if spec is None:
            return None
        folders = list(spec.submodule_search_locations or ())
    if folders:
        return Path(folders[0])
    origin = Path(spec.origin) if spec is not None and spec.has_location and spec.origin else None
    return origin if origin is not None and origin.suffix == ".py" else None


def _python_spans(text: str, lines: Sequence[str], name: str) -> Iterable[tuple[int, int, str]]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return _paragraph_spans(lines)
    return [span for span in _block_spans(tree.body, 1, len(lines), name) if _has_text(lines, span)]


def _block_spans(body: Sequence[ast.stmt], first: int, last: int, title: str, path: str = "") -> Iterator[tuple[int, int, str]]:
    """Functions of a module or class, and what stands between them under the title of the whole."""
    for node in body:
        if not isinstance(node, Definition):
            continue
        start = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        end = node.end_lineno or node.lineno
        if start > first:
            yield first, start - 1, title
        qualified = f"{path}{node.name}"
        if isinstance(node, ast.ClassDef):
            yield from _block_spans(node.body, start, end, qualified, f"{qualified}.")
        else:
            yield start, end, qualified
        first = end + 1
    if first <= last:
        yield first, last, title


def _section_spans(lines: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    start, title = 1, ""
    for number, (line, is_code) in enumerate(_marked(lines), 1):
        heading = None if is_code else _HEADING.fullmatch(line)
        if heading:
            if _has_text(lines, (start, number - 1, title)):
                yield start, number - 1, title
            start, title = number, heading[1]
    if _has_text(lines, (start, len(lines), title)):
        yield start, len(lines), title


def _paragraph_spans(lines: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    start = 0
    for number, line in enumerate([*lines, ""], 1):
        if line.strip():
            start = start or number
        elif start and (number - start >= _PARAGRAPH_LINES or number > len(lines)):  # a short one joins the next
            yield start, number - 1, lines[start - 1].strip()[:80]
            start = 0


def _marked(lines: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Each line of a Markdown text, with whether it belongs to fenced code."""
    fence = ""
    for line in lines:
        mark = _FENCE.match(line)
        if mark and not fence:
            fence = mark[1]
            yield line, True
            continue
        yield line, bool(fence)
        if fence and mark and mark[1].startswith(fence) and line.strip() == mark[1]:
            fence = ""


def _has_text(lines: Sequence[str], span: tuple[int, int, str]) -> bool:
    return any(line.strip() for line in lines[span[0] - 1 : span[1]])
