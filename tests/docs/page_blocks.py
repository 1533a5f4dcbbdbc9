"""Code blocks of Markdown pages, and the commands of shell blocks."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
REASON = re.compile(r"<!-- illustrative: \S.* -->")
CONTINUED = re.compile(r"\\\n\s*")


@dataclass(frozen=True)
class Block:
    """A block of code: language, text, position, and whether it is only illustrative."""

    language: str
    text: str
    line: int  # of its first line of code, from 1
    illustrative: bool = False

    def commands(self) -> list[list[str]]:
        """Words of each command of a shell block, without comments."""
        lines = CONTINUED.sub(" ", self.text).splitlines()
        words = [shlex.split(line, comments=True) for line in lines]
        return [part for line in words for part in _between(line, "&&") if part]


def _between(words: list[str], mark: str) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for word in words:
        if word == mark:
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def all_pages() -> list[Path]:
    """README and every page of the documentation."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def read_blocks(text: str) -> list[Block]:
    """The code blocks of a page in order; an indented one has the language ``indented``."""
    lines, blocks = text.splitlines(), []
    for token in MarkdownIt().parse(text):
        if token.type == "code_block":
            blocks.append(Block("indented", token.content, token.map[0] + 1))
        elif token.type == "fence":
            before = "\n".join(lines[: token.map[0]]).rstrip().rpartition("\n")[2].strip()
            shown = REASON.fullmatch(before) is not None
            language = (token.info.split() or [""])[0]
            blocks.append(Block(language, token.content, token.map[0] + 2, shown))
    return blocks
