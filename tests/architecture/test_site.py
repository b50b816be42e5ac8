"""The site of the documentation: it is built without a warning, is complete without a network, and what is made from
code is what the code says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tidemill
from bench import page, record
from tests.kit.process import ROOT
from website.api import documented
from website.hooks import navigation, without_ways_out
from website.machines import MACHINES, Machine, Outside
from website.made import DOCS, made
from website.paths import PATHS

PEERS = ("celery", "procrastinate", "pgqueuer", "dbos", "prototype")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    words = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return folder


def test_every_page_is_in_the_site(built: Path) -> None:
    """With strict, mkdocs has looked at links, anchors, and pages that no section names."""
    pages = {path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md")}
    found = {path.relative_to(built) for path in built.rglob("*.html")}
    names = {path.with_name("index.html") if path.name == "README.html" else path for path in pages}
    assert names <= found
    assert len(names) > 60


def test_the_site_needs_no_other(built: Path) -> None:
    """Scripts, styles, fonts and pictures are its own."""
    fetched = re.compile(
        r"""(?:\bsrc|<link[^>]*\bhref)=["']?(?:https?:)?//[^"'\s>]+|@import[^;]*//|url\(["']?(?:https?:)?//"""
    )
    found = {
        f"{path.relative_to(built)}: {match[0]}"
        for path in built.rglob("*")
        if path.suffix in (".html", ".css")
        for match in fetched.finditer(path.read_text())
    }
    assert found == set()


def test_tables_and_lists_are_drawn_as_such(built: Path) -> None:
    """The usual viewers of repositories are more forgiving than the site's."""
    text = re.compile(r"<p>(?:(?!</p>|<code>).)*\n(?:- |\d+\. |\|)", re.DOTALL)
    assert [str(path.relative_to(built)) for path in built.rglob("*.html") if text.search(path.read_text())] == []


def test_what_is_made_from_code_is_what_the_code_says() -> None:
    wrong = [name for name, text in made().items() if (DOCS / name).read_text() != text]
    assert wrong == [], "run: python -m website"


def test_the_figures_of_the_readme_are_those_on_record() -> None:
    text = page.README.read_text()
    assert page.readme(text, page.figures(record.read(), page.measures())) == text, "run: python -m bench.page"


@pytest.mark.parametrize("name", tidemill.__all__)
def test_every_public_name_says_what_it_is(name: str) -> None:
    assert documented(getattr(tidemill, name))


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.table)
def test_every_state_is_reached_and_left(machine: Machine) -> None:
    states = {state.value for state in machine.states}
    assert {target for _, target in machine.pairs()} == {*states, Outside.GONE}
    assert {source for source, _ in machine.pairs()} == {*states, Outside.NEW}


def test_every_picture_is_on_a_page() -> None:
    text = "\n".join(page.read_text() for page in DOCS.rglob("*.md"))
    pictures = sorted(path.name for path in (DOCS / "pictures").iterdir())
    assert set(PATHS) <= set(pictures)
    assert [name for name in pictures if f"pictures/{name})" not in text] == []


def test_the_order_of_the_site_is_the_index(tmp_path: Path) -> None:
    (tmp_path / "adr").mkdir()
    for name in ("README", "0001-one", "0002-two"):
        (tmp_path / "adr" / f"{name}.md").write_text(f"# {name}\n")
    index = "# All\n\n## Begin\n\n| a | b |\n|---|---|\n| [Start](start.md) · [go on](on.md#there) | [not me](x.md) |\n"
    index += "\n## How to\n\n### Run it\n\n| [Stop](stop.md) | |\n"
    index += "\n## Decisions\n\n[Why](adr/README.md).\n\n## Else\n\nA word.\n"
    (tmp_path / "README.md").write_text(index)
    assert navigation(tmp_path) == [
        {"Home": "README.md"},
        {"Begin": [{"Start": "start.md"}, {"Go on": "on.md"}]},
        {"How to": [{"Run it": [{"Stop": "stop.md"}]}]},
        {"Decisions": ["adr/README.md", "adr/0001-one.md", "adr/0002-two.md"]},
    ]


def test_links_that_leave_the_site_become_names() -> None:
    text = "[here](there.md#a), [the file](../../app/x.proto)\n\n```python\na = b[0](../../c)\n```\n"
    told = without_ways_out(text, "howto")
    assert (
        told == "[here](there.md#a), the file (`app/x.proto` in the repository)\n\n```python\na = b[0](../../c)\n```\n"
    )


def test_the_comparison_names_the_peers_that_are_measured() -> None:
    """Each measure of the table runs the peers that it names, and no peer is measured and left out."""
    rows = re.findall(r"^\| (B\d+) \| [^|]+ \| ([^|]+) \|$", (DOCS / "comparison.md").read_text(), re.MULTILINE)
    told = {name: {peer for peer in PEERS if peer in peers.lower()} for name, peers in rows}
    code = {path.name: path.read_text() for path in (ROOT / "bench" / "measures").glob("b*.py")}
    found = {
        f"B{int(name[1:3])}": {peer for peer in PEERS if re.search(rf'"{peer}\b', text, re.IGNORECASE)}
        for name, text in code.items()
    }
    assert told == {name: peers for name, peers in found.items() if peers}
