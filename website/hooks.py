"""What `mkdocs.yml` leaves to us: the navigation, which is the index of the pages, and links that leave the site."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

INDEX = "README.md"
DECISIONS = "adr"
HEAD = re.compile(r"^(##+) (.+)$")
LINK = re.compile(r"\[([^\]]+)\]\(([^)\s#:]+)(#[^)\s]*)?\)")
FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def navigation(docs: Path) -> list[Any]:
    """Sections are the headings of the index, pages the links of its tables."""
    home: dict[str, Any] = {"Home": INDEX}
    sections: list[Any] = []
    inner: list[Any] = []
    for line in (docs / INDEX).read_text().splitlines():
        if head := HEAD.match(line):
            inner = []
            place = sections if head[1] == "##" else sections[-1][next(iter(sections[-1]))]
            place.append({head[2]: inner})
        elif sections and line.startswith("| ["):
            inner += [{_title(title): path} for title, path, _ in LINK.findall(line.split("|")[1])]
        elif line.startswith("[") and f"]({DECISIONS}/" in line:
            inner += _decisions(docs)
    return [home, *({name: pages} for section in sections for name, pages in section.items() if pages)]


def _title(text: str) -> str:
    return text[0].upper() + text[1:]


def _decisions(docs: Path) -> list[str]:
    return [f"{DECISIONS}/{path.name}" for path in sorted((docs / DECISIONS).glob("*.md"), key=_readme_first)]


def _readme_first(path: Path) -> tuple[bool, str]:
    return path.name != INDEX, path.name


def without_ways_out(text: str, folder: str) -> str:
    """A link to a file of the repository that is no page becomes the name of the file."""

    def named(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs", folder, link[2]))
        return link[0] if target.startswith("docs/") else f"{link[1]} (`{target}` in the repository)"

    return "".join(part if part.startswith("```") else LINK.sub(named, part) for part in FENCED.split(text))


def on_config(config: Any) -> Any:
    config.nav = navigation(Path(config.docs_dir))
    return config


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    return without_ways_out(markdown, posixpath.dirname(page.file.src_uri))
