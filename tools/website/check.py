"""Check the links of the built site and of the Markdown files in the repository.

``python -m tools.website.check SITE`` prints all problems and exits with code 1 if there are any.
"""

import re
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

from pymdownx.slugs import slugify

from tools.website.markdown_text import ELSEWHERE, links

ROOT = Path(__file__).parents[2]
HEADING = re.compile(r"^ *```.*?^ *```|^#+ +(?P<title>[^\n]+)$", re.M | re.S)
LOADED = {"script": "src", "link": "href", "img": "src", "iframe": "src"}  # without a click


class Page(HTMLParser):
    """The links, anchors and loaded resources of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors = {""}
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Record the links, anchors and resources of a tag."""
        values = {name: value for name, value in attributes if value}
        self.anchors.update(values[name] for name in ("id", "name") if name in values)
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if values.get("rel") != "canonical" and LOADED.get(tag) in values:
            self.loaded.append(values[LOADED[tag]])


def site_problems(site: Path) -> Iterator[str]:
    """Broken links, and resources that would be loaded from the network."""
    pages = {path: Page(path.read_text("utf-8")) for path in site.rglob("*.html")}
    for path, page in pages.items():
        where = path.relative_to(site)
        loaded = [one for one in page.loaded if not one.startswith("data:")]
        yield from (f"{where} loads {one}" for one in loaded if ELSEWHERE.match(one))
        if path.name == "404.html":  # its links begin at the root of a server
            continue
        for link in [*page.links, *page.loaded]:
            if ELSEWHERE.match(link):
                continue
            name, _, anchor = unquote(link).partition("#")
            target = (path.parent / name.partition("?")[0]).resolve() if name else path
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                yield f"{where} links to {link}, which does not exist"
            elif target in pages and anchor not in pages[target].anchors:
                yield f"{where} links to {link}, whose anchor does not exist"


def repository_problems(root: Path = ROOT) -> Iterator[str]:
    """Links of Markdown files to files or headings that are not in the repository."""
    pages = [*root.glob("*.md"), *(root / "docs").rglob("*.md"), *root.glob("results/**/*.md")]
    for page in sorted(pages):
        for link in links(page.read_text("utf-8")):
            name, _, anchor = unquote(link).partition("#")
            target = page.parent / name if name else page
            if not target.exists():
                yield f"{page.relative_to(root)} links to {link}, which does not exist"
            elif anchor and target.suffix == ".md" and anchor not in _anchors(target):
                yield f"{page.relative_to(root)} links to {link}, whose heading does not exist"


@cache
def _anchors(page: Path) -> set[str]:
    """Anchors of the headings of a page, as GitHub and our site name them."""
    titles = (found["title"] for found in HEADING.finditer(page.read_text("utf-8")))
    return {slugify(case="lower")(title, "-") for title in titles if title}


def main(site: str) -> int:
    """Print all problems."""
    found = [*site_problems(Path(site).resolve()), *repository_problems()]
    print(
        "\n".join(found)
        if found
        else "All links work, and no page loads anything from the network."
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
