"""The documentation says what is: code compiles, names and commands exist, links lead somewhere, nothing is missing."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import click
import pytest

from app import errors
from app.cli.root import tidemill
from app.schema import metadata
from app.settings import PREFIX, Settings, file_names

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "bench" / "README.md"])
REFERENCE = ROOT / "docs" / "reference"
FENCE = re.compile(r'^```(\w*)(?: title="[^"]*")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
SHELL = ("sh", "bash", "shell", "console")
#: What examples may import of ours: the facade, and what is documented by its full name.
PUBLIC = ("tidemill", "tidemill.outside", "tidemill.testing", "app.embedded", "app.errors")
OURS = ("app", "recovery", "triggers", "stages", "processes", "tidemill")


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks() -> Iterator[Block]:
    for page in PAGES:
        text = page.read_text()
        for found in FENCE.finditer(text):
            yield Block(page, text.count("\n", 0, found.start()) + 1, found[1], found[2])


PYTHON = [block for block in blocks() if block.language == "python"]


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text())


def commands() -> Iterator[tuple[str, str]]:
    """Every shell line, and every piece of inline code; with the page it is on."""
    for block in blocks():
        if block.language in SHELL:
            lines = block.text.replace("\\\n", " ").splitlines()
            yield from ((str(block), line.partition(" #")[0].strip()) for line in lines)
    for page in PAGES:
        yield from ((str(page.relative_to(ROOT)), code) for code in re.findall(r"`([^`\n]+)`", prose(page)))
    for file in (ROOT / "docker-compose.yml", ROOT / "Dockerfile"):
        found = re.findall(r"^\s*(?:command:|CMD) (\[.*\])$", file.read_text(), re.MULTILINE)
        yield from ((file.name, " ".join(json.loads(words))) for words in found)


def words_after(program: str) -> Iterator[tuple[str, list[str]]]:
    for page, line in commands():
        words = line.split()
        while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
            words = words[1:]
        if words and words[0] == program and len(words) > 1:
            yield page, words[1:]


def test_there_are_pages_and_blocks() -> None:
    assert len(PAGES) > 30
    assert len(PYTHON) > 10


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_python_compiles_and_its_names_exist(block: Block) -> None:
    tree = ast.parse(block.text, str(block))
    compile(tree, str(block), "exec")
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            assert not [name.name for name in node.names if name.name.split(".")[0] in OURS], "import names instead"
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in OURS:
            assert node.module in PUBLIC, f"{node.module} is not for users"
            module = importlib.import_module(node.module)
            missing = [name.name for name in node.names if not hasattr(module, name.name)]
            assert not missing, f"{node.module} has no {missing}"


def test_all_public_names_are_documented() -> None:
    text = "\n".join(page.read_text() for page in PAGES)
    public = importlib.import_module("tidemill").__all__
    assert [name for name in public if not re.search(rf"\b{name}\b", text)] == []


def slugs(page: Path) -> set[str]:
    """The anchors of a page's headings, as the usual renderers make them."""
    heads = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in LINK.findall(prose(page)):
        if link.startswith(("https://", "http://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in slugs(target)):
            broken.append(link)
    assert broken == []


def test_every_page_is_linked_from_another() -> None:
    linked = {
        (page.parent / link.partition("#")[0]).resolve() for page in PAGES for link in LINK.findall(prose(page)) if link
    }
    assert [str(page.relative_to(ROOT)) for page in PAGES if page not in linked and page.name != "README.md"] == []


def resolve(words: list[str]) -> tuple[click.Command, list[str], list[str]]:
    """The command that these words name, its path, and what is left of them."""
    command: click.Command = tidemill
    path = ["tidemill"]
    while isinstance(command, click.Group) and words and words[0] in command.commands:
        command = command.commands[words[0]]
        path.append(words[0])
        words = words[1:]
    return command, path, words


def names_of(command: click.Command) -> set[str]:
    return {name for option in command.params for name in option.opts if name.startswith("--")} | {"--help"}


def test_commands_of_tidemill_exist() -> None:
    wrong = []
    for page, words in words_after("tidemill"):
        if words[0] in ("COMMAND", "--help", "--version"):
            continue
        command, path, rest = resolve(words)
        group_alone = isinstance(command, click.Group) and not command.invoke_without_command
        if group_alone and rest and not rest[0].startswith(("|", "-")):
            wrong.append(f"{page}: {' '.join(path)} has no command {rest[0]}")
        given = {word.partition("=")[0].strip("[]") for word in rest if word.strip("[").startswith("--")}
        wrong += [f"{page}: {' '.join(path)} has no {option}" for option in sorted(given - names_of(command))]
    assert wrong == []


def all_commands() -> Iterator[tuple[str, click.Command]]:
    def walk(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
        yield path, command
        if isinstance(command, click.Group):
            for name, below in command.commands.items():
                yield from walk(below, f"{path} {name}")

    for name, command in tidemill.commands.items():
        yield from walk(command, f"tidemill {name}")


def sections(page: Path) -> dict[str, str]:
    parts = re.split(r"^## (.+)$", page.read_text(), flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_the_reference_has_every_command_with_its_options() -> None:
    documented = {
        title: text for title, text in sections(REFERENCE / "cli.md").items() if title.startswith("tidemill ")
    }
    found = dict(all_commands())
    assert sorted(documented) == sorted(found)
    for path, command in found.items():
        rows = set(re.findall(r"^\| `(--[\w-]+)", documented[path], re.MULTILINE))
        assert rows == names_of(command) - {"--help"}, path


def test_targets_of_make_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))
    used = {(page, word) for page, words in words_after("make") for word in words if "=" not in word}
    assert sorted(f"{page}: make {word}" for page, word in used if word not in targets) == []
    explained = "".join(re.findall(r"^\| `make .*$", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE))
    assert [target for target in sorted(targets) if f"`make {target}`" not in explained] == []


def test_commands_of_celery_exist() -> None:
    from celery.bin.celery import celery

    from app.celery import app
    from app.scheduler import scheduler

    known = {*celery.commands, scheduler.name}
    known_options = {name for option in app.user_options["worker"] for name in option.opts}
    wrong = []
    for page, words in words_after("celery"):
        if words[:2] != ["-A", "app"] or len(words) < 3:
            continue
        if words[2] not in known:
            wrong.append(f"{page}: celery {words[2]}")
        elif words[2] == "worker":
            own = {option for each in celery.commands["worker"].params for option in each.opts} | known_options
            wrong += [f"{page}: {word}" for word in words[3:] if word.startswith("--") and word not in own]
    assert wrong == []


def rows(text: str) -> list[list[str]]:
    """The names in backticks in the first cell of each row of a table."""
    cells = re.findall(r"^\|([^|]*)\|", text, re.MULTILINE)
    return [names for cell in cells if (names := re.findall(r"`([^`]+)`", cell))]


def test_every_setting_is_documented_with_its_default() -> None:
    text = (REFERENCE / "settings.md").read_text()
    documented = dict(re.findall(rf"^\| `({PREFIX}\w+)` \| ([^|]+) \|", text, re.MULTILINE))
    assert sorted(documented) == sorted(PREFIX + field.name.upper() for field in fields(Settings))
    for field in fields(Settings):
        shown = documented[PREFIX + field.name.upper()].strip()
        if shown.startswith("`"):
            assert field.metadata["parse"](shown.strip("`")) == field.default, field.name
        else:
            assert not field.default, f"{field.name}: {shown}"


def test_settings_named_anywhere_exist() -> None:
    known = {PREFIX + field.name.upper() for field in fields(Settings)} | set(file_names())
    deployed = [path for path in (ROOT / "deploy").rglob("*") if path.is_file()]
    files = [*PAGES, ROOT / "Dockerfile", ROOT / "docker-compose.yml", *deployed]
    used = {(file.name, name) for file in files for name in re.findall(rf"{PREFIX}[A-Z_]*[A-Z]", file.read_text())}
    assert sorted((file, name) for file, name in used if name not in known) == []


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = {
        "Run time": project["project"]["dependencies"],
        "Extra `embedded`": project["project"]["optional-dependencies"]["embedded"],
        "Extra `pydantic`": project["project"]["optional-dependencies"]["pydantic"],
        "Extra `tracing`": project["project"]["optional-dependencies"]["tracing"],
        "Group `dev`": project["dependency-groups"]["dev"],
    }
    documented = sections(REFERENCE / "dependencies.md")
    assert sorted(documented) == sorted(groups)
    for title, wanted in groups.items():
        names = {re.split(r"[^\w.-]", requirement, maxsplit=1)[0] for requirement in wanted}
        assert {name for row in rows(documented[title]) for name in row} == names, title


def test_the_tree_of_errors_is_the_one_in_the_code() -> None:
    tree = re.search(r"^    TidemillError\n.*?(?=\n\n)", errors.__doc__ or "", re.MULTILINE | re.DOTALL)
    assert tree is not None
    assert inspect.cleandoc(tree[0]) in (REFERENCE / "errors.md").read_text()
    classes = {name for name, each in vars(errors).items() if inspect.isclass(each) and each.__module__ == "app.errors"}
    assert classes == set(re.findall(r"\b[A-Z]\w+(?= {2}|$)", tree[0], re.MULTILINE))


def test_every_table_and_column_is_documented() -> None:
    documented = {title: {name for row in rows(text) for name in row} for title, text in _tables().items()}
    real = {table.name: {column.name for column in table.columns} for table in metadata.tables.values()}
    assert documented == real


def _tables() -> dict[str, str]:
    return sections(REFERENCE / "schema.md")


HEAD = re.compile(r"create (?:or replace )?function (tidemill\.(\w+)\(.*?)(?=\s+language)", re.DOTALL)


def sql_functions() -> dict[str, str]:
    """By name, the latest head of each."""
    texts = [path.read_text() for path in sorted((ROOT / "app" / "migrations" / "sql").glob("*.sql"))]
    return {name: head for text in texts for head, name in HEAD.findall(text)}


def test_the_sql_functions_are_documented_as_they_are() -> None:
    found, documented = sql_functions(), sections(REFERENCE / "sql.md")
    assert len(found) > 4
    assert {f"tidemill.{name}" for name in found} == {title for title in documented if title.startswith("tidemill.")}
    for name, head in found.items():
        assert f"```sql\n{head}\n```" in documented[f"tidemill.{name}"], name


@pytest.mark.parametrize(
    ("function", "page"), [("enqueue", "enqueue-from-sql.md"), ("advance", "advance-the-control-table.md")]
)
def test_the_arguments_of_sql_functions_are_explained(function: str, page: str) -> None:
    arguments = re.findall(
        r"(?:\(|, |^    )(\w+) (?:text|json|integer|timestamptz)", sql_functions()[function], re.MULTILINE
    )
    assert arguments
    text = (ROOT / "docs" / "howto" / page).read_text()
    assert [name for name in arguments if f"| `{name}` |" not in text] == []


def test_rules_that_are_referred_to_exist() -> None:
    rules = set(re.findall(r"^### ([A-Z]\d+)$", (REFERENCE / "rules.md").read_text(), re.MULTILINE))
    assert {f"J{number}" for number in range(1, 11)} <= rules
    links = [(page.name, name) for page in PAGES for name in re.findall(r"\[([JRSTP]\d+)\]", page.read_text())]
    assert links
    assert [(page, name) for page, name in links if name not in rules] == []


def test_decisions_are_numbered_and_listed() -> None:
    folder = ROOT / "docs" / "adr"
    pages = sorted(folder.glob("[0-9]*.md"))
    index = (folder / "README.md").read_text()
    for number, page in enumerate(pages, 1):
        title, _, text = page.read_text().partition("\n")
        assert page.name.startswith(f"{number:04}-")
        assert title.startswith(f"# {number}. ")
        assert [head for head in ("Status: ", "## Context", "## Decision", "## Consequences") if head not in text] == []
        assert f"| [{number}]({page.name}) | {title.split('. ', 1)[1]} |" in index


def test_the_changelog_keeps_its_form() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    heads = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert heads[0] == "[Unreleased]"
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert set(re.findall(r"^### (.+)$", text, re.MULTILINE)) <= kinds
