"""Links in Markdown text (outside code), and Markdown tables."""

import re
from collections.abc import Callable, Iterator

CODE_OR_LINK = re.compile(r"^ *```.*?^ *```|`[^`\n]*`|\]\((?P<target>[^)\s]+)\)", re.M | re.S)
ELSEWHERE = re.compile(r"[a-z][a-z+.-]*:|//")  # https:, mailto:, …


def links(text: str) -> Iterator[str]:
    """Targets of all links and images within the repository."""
    for found in CODE_OR_LINK.finditer(text):
        if (target := found["target"]) and not ELSEWHERE.match(target):
            yield target


def replace_links(text: str, change: Callable[[str], str]) -> str:
    """The text with the target of each such link changed."""

    def changed(found: re.Match[str]) -> str:
        target = found["target"]
        return found[0] if not target or ELSEWHERE.match(target) else f"]({change(target)})"

    return CODE_OR_LINK.sub(changed, text)


def table(titles: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [titles, ["---"] * len(titles), *rows]
    cells = ([cell.replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)
