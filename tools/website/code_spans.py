"""MkDocs hook: inline code is shown as it is meant to be typed.

- In the tables of our Markdown files, a pipe within code is written as ``\\|``, which GitHub shows
  as a pipe. Python-Markdown would show the backslash.
- An option such as ``--bad-rows`` is not broken at its hyphens.
"""

import re
from typing import Any

TABLE_LINE = re.compile(r"^\|.*$", re.M)
MARKDOWN_CODE = re.compile(r"`[^`\n]+`")
HTML_CODE = re.compile(r"<code>([^<]+)</code>")  # blocks are highlighted, so they contain tags
OPTION = re.compile(r"(?<![\w-])--?[a-z][\w-]*")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Write pipes in the code of tables as Python-Markdown expects them."""

    def unescaped(line: re.Match[str]) -> str:
        return MARKDOWN_CODE.sub(lambda code: code[0].replace("\\|", "|"), line[0])

    return TABLE_LINE.sub(unescaped, markdown)


def on_page_content(content: str, **_: Any) -> str:
    """Keep the names of options in one line."""

    def marked(code: re.Match[str]) -> str:
        text = OPTION.sub(r'<span class="option">\g<0></span>', code[1])
        return f"<code>{text}</code>"

    return HTML_CODE.sub(marked, content)
