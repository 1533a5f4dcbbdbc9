"""MkDocs hook: files outside of ``docs/`` that pages link to become part of the site.

Links are written for the repository (``../SECURITY.md``, ``../results/zinc``), so that they
work on GitHub. This hook adds the linked files as pages and adapts the links.
"""

import posixpath
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel

from tools.website.markdown_text import links, replace_links

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
IN_NAVIGATION = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
ELSEWHERE_ON_SITE = {"README.md": "index.md"}
SHOWN_AS_THEY_ARE = (".md", ".png", ".svg", ".jpg", ".html")
# Rank settings and commands first in searches; sources and results are linked but not indexed.
SEARCH = {
    "configuration.md": {"boost": 4},
    "commands.md": {"boost": 3},
    "modules.md": {"boost": 0.3},
    "changelog.md": {"boost": 0.3},
}
LANGUAGES = {".py": "python", ".toml": "toml", ".json": "json", ".cff": "yaml", ".csv": "text"}


def repository_path(page: str, target: str) -> Path:
    """The file or folder in the repository that a link on a page points to."""
    path = (ROOT / page).parent / target.partition("#")[0]
    path = path.resolve() if target[0] != "#" else ROOT / page
    return path / "README.md" if (path / "README.md").is_file() else path


def site_uri(path: Path) -> str:
    """Path of a file or folder of the repository within the sources of the site."""
    if path.is_relative_to(DOCS):
        uri = path.relative_to(DOCS).as_posix()
        return f"{uri.removesuffix('.ipynb')}.md" if uri.endswith(".ipynb") else uri
    name = path.relative_to(ROOT).as_posix()
    if path.is_dir():
        return f"repository/{name}/index.md"
    if path.suffix not in SHOWN_AS_THEY_ARE:
        return f"repository/{name}.md"
    return {**IN_NAVIGATION, **ELSEWHERE_ON_SITE}.get(name, f"repository/{name}")


def described(path: Path) -> str:
    """The page of a folder, or of a source file."""
    name = path.relative_to(ROOT).as_posix()
    if path.is_dir():
        files = sorted(one.name for one in path.iterdir() if one.suffix in LANGUAGES)
        return f"# {name}\n\n" + "".join(f"- [{file}]({path.name}/{file})\n" for file in files)
    language = LANGUAGES.get(path.suffix, "text")
    return f"# {path.name}\n\n`{name}`\n\n````{language}\n{path.read_text('utf-8')}\n````\n"


def on_files(files: Files, config: Any, **_: Any) -> Files:
    """Add the pages of the navigation and, recursively, all files that are linked to."""
    pages = (file for file in files if file.src_uri.endswith(".md"))
    texts = [(f"docs/{file.src_uri}", file.content_string) for file in pages]
    texts += [("mkdocs.yml", "".join(f"[]({name})" for name in IN_NAVIGATION))]
    seen = {ROOT / name for name in ELSEWHERE_ON_SITE}
    while texts:
        name, text = texts.pop()
        for target in links(text):
            path = repository_path(name, target)
            if path not in seen and _is_outside_docs(path):
                seen.add(path)
                files.append(_added(path, config))
                texts.append((_name(path), _text(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files, **_: Any) -> str:
    """Adapt the links of the repository to the site, and rank the page for search."""
    if page.file.src_uri.startswith("repository/"):
        page.meta["search"] = {"exclude": True}
    elif page.file.src_uri in SEARCH:
        page.meta["search"] = SEARCH[page.file.src_uri]
    name = getattr(page.file, "repository_name", f"docs/{page.file.src_uri}")

    def changed(target: str) -> str:
        path, (_, mark, anchor) = repository_path(name, target), target.partition("#")
        if target.startswith("#") or not (path.exists() and path.is_relative_to(ROOT)):
            return target  # MkDocs reports it
        uri = posixpath.relpath(site_uri(path), posixpath.dirname(page.file.src_uri) or ".")
        return f"{uri}{mark}{anchor}"

    return replace_links(markdown, changed)


def _is_outside_docs(path: Path) -> bool:
    return path.exists() and path.is_relative_to(ROOT) and not path.is_relative_to(DOCS)


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _text(path: Path) -> str:
    if path.suffix == ".md":
        return path.read_text("utf-8")
    return "" if path.suffix in SHOWN_AS_THEY_ARE else described(path)


def _added(path: Path, config: Any) -> File:
    uri = site_uri(path)
    inclusion = (
        InclusionLevel.INCLUDED if uri in IN_NAVIGATION.values() else InclusionLevel.NOT_IN_NAV
    )
    source = (
        {"abs_src_path": str(path)}
        if path.suffix in SHOWN_AS_THEY_ARE
        else {"content": described(path)}
    )
    file = File.generated(config, uri, inclusion=inclusion, **source)
    file.repository_name = _name(path)
    return file
