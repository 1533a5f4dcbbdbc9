"""Griffe extension that converts the reStructuredText of docstrings to Markdown."""

import re
import textwrap
from typing import Any

from griffe import Extension, Object

ROLE = re.compile(r":(?:func|class|meth|mod|attr):`~?([^`]+)`")
EXAMPLE = re.compile(r"^( *)Example:$", re.M)
MATH = re.compile(r"^( *)\.\. math::\n((?:\1 +.*\n|\n)+)", re.M)


def as_markdown(text: str) -> str:
    """A docstring with roles as code and ``.. math::`` as formulas."""

    def formula(found: re.Match[str]) -> str:
        lines = textwrap.dedent(found[2]).strip()
        return f"$$\n{lines}\n$$\n\n"

    text = EXAMPLE.sub(r"\1Examples:", text)  # which Griffe shows as code
    return ROLE.sub(r"`\1`", MATH.sub(formula, text))


class MarkdownDocstrings(Extension):
    """Converts every docstring when it is loaded."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Convert the docstring of an object."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
