"""Write ``docs/commands.md`` and ``docs/configuration.md`` from the code: part of ``make docs``."""

import sys
from pathlib import Path

from tools.website.commands import commands_page
from tools.website.settings import settings_page

ROOT = Path(__file__).parents[2]
MADE = "<!-- Made by `make docs` from the code: change {source}, not this page. -->\n\n"


def pages() -> dict[Path, str]:
    """Both pages, as the code now has them."""
    docs = ROOT / "docs"
    return {
        docs / "commands.md": MADE.format(source="grass_gnn/cli") + commands_page(),
        docs / "configuration.md": MADE.format(source="grass_gnn/config") + settings_page(),
    }


def main() -> int:
    """Write what has changed."""
    for path, text in pages().items():
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
            print(f"{path.relative_to(ROOT)} was written anew")
    return 0


if __name__ == "__main__":
    sys.exit(main())
