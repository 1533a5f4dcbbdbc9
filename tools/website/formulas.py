"""MkDocs hook: formulas become MathML when the site is built, so that pages need no scripts."""

import html
import logging
import re
from typing import Any

from latex2mathml.converter import convert

# What pymdownx.arithmatex makes of $…$ and $$…$$.
FORMULA = re.compile(
    r'<span class="arithmatex">\\\((?P<inline>.*?)\\\)</span>'
    r'|<div class="arithmatex">\s*\\\[(?P<block>.*?)\\\]\s*</div>',
    re.S,
)
# Large operators that the converter does not know as such: their limits go below the sign.
LARGE_OPERATOR = re.compile(r"<msub><mi>(&#x02A0[0-6];)</mi>(.*?)</msub>", re.S)
# The bars of |V| are brackets: they do not grow with what is beside them and take no space around.
BAR = "<mo>&#x0007C;</mo>"
TIGHT_BAR = '<mo stretchy="false" lspace="0" rspace="0">&#x0007C;</mo>'
log = logging.getLogger("mkdocs.hooks.formulas")


def on_page_content(content: str, page: Any, **_: Any) -> str:
    """Replace each formula by MathML."""

    def mathml(found: re.Match[str]) -> str:
        inline = found["inline"] is not None
        latex = html.unescape(found["inline"] if inline else found["block"]).strip()
        made = convert(latex, display="inline" if inline else "block").replace(BAR, TIGHT_BAR)
        if "\\" in html.unescape(made):  # the converter leaves unknown commands as text
            log.warning("%s: the formula %r cannot be shown", page.file.src_uri, latex)
        if not inline:
            made = LARGE_OPERATOR.sub(r"<munder><mo>\1</mo>\2</munder>", made)
        return made if inline else f'<div class="formula">{made}</div>'

    return FORMULA.sub(mathml, content)
