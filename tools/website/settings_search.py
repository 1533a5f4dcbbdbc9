"""MkDocs hook: searching for a setting finds its row on the page of settings first.

The search knows pages and headings. Each row of a table of settings gets an anchor, and an entry in
the index whose title is the name of the setting.
"""

import html
import json
import re
from pathlib import Path
from typing import Any

PAGE = "configuration"
ROW = re.compile(
    r"<td><code>(?P<name>[a-z_]+\.[a-z_.]+)</code></td>\s*<td>(?P<meaning>.*?)</td>", re.S
)
TAG = re.compile(r"<[^>]+>")

_found: dict[str, str] = {}  # meaning of each setting


def on_page_content(content: str, page: Any, **_: Any) -> str:
    """Give each setting an anchor."""
    if page.file.src_uri != f"{PAGE}.md":
        return content

    def anchored(row: re.Match[str]) -> str:
        name = row["name"]
        _found[name] = html.unescape(TAG.sub("", row["meaning"]))
        return row[0].replace("<td>", f'<td id="{name}">', 1)

    return ROW.sub(anchored, content)


def on_post_build(config: Any, **_: Any) -> None:
    """Add the settings to the index of the search."""
    path = Path(config.site_dir) / "search" / "search_index.json"
    index = json.loads(path.read_text("utf-8"))
    index["docs"] += [
        {"location": f"{PAGE}.html#{name}", "title": name, "text": html.escape(meaning), "boost": 4}
        for name, meaning in _found.items()
    ]
    path.write_text(json.dumps(index, ensure_ascii=False, separators=(",", ":")), "utf-8")
