"""The commands of the how-tos, typed where what other how-tos declare is there: `python -m tests.kit.howto_commands`.

Says of each, as a line of JSON, what came of it. A question is answered with yes.
"""

from __future__ import annotations

import io
import json
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import ModuleType

import sqlalchemy as sa

from app.celery import app as celery_app
from app.cli.root import run
from tests.kit import doc_pages, howto_worlds
from tests.kit.howto_work import take_up, work
from tidemill import ctl, periodic, start, transaction

#: They go on until they are stopped, or need roles and files of the machine; tests of their own run them.
LEFT_OUT = ("up", "console", "rpc", "ctl watch", "events tail", "migrate --grant")
ASKS = "Nobody can be asked here: say --yes"
OF_OTHERS = """
from tidemill import actor
@actor
def label(order_id: str, warehouse: str) -> str: ...
"""


def declare(name: str, page: str, *blocks: int) -> ModuleType:
    """A module of the reader's: these blocks of Python of a page, or all."""
    module = howto_worlds.module(name)
    code = [block.text for block in doc_pages.blocks(f"howto/{page}.md") if block.language == "python"]
    for number, text in enumerate(code, 1):
        if not blocks or number in blocks:
            exec(compile(text, f"{page}.md", "exec"), module.__dict__)  # noqa: S102
    return module


def prepare() -> None:
    celery_app.finalize()
    jobs = ModuleType("jobs")
    howto_worlds.waiting_jobs(jobs)
    periodic(sys.modules["shop"].nightly_report.s(), cron="0 3 * * *")
    howto_worlds.module("warehouse", Order=object, add_to_mart=lambda *_: None)
    declare("marts", "write-reactive-tasks", 1, 4)
    for page in ("watch-entities", "write-stages", "limit-stages"):
        declare("offers", page)
    fulfilment = howto_worlds.module("fulfilment")
    for service, method in (("bank", "charge"), ("courier", "send"), ("mails", "send")):
        howto_worlds.noted(fulfilment, service, method)
    declare("fulfilment", "write-a-process", 1)
    exec(OF_OTHERS, fulfilment.__dict__)  # noqa: S102
    take_up()
    ctl.advance("dds.orders", loaded_to=howto_worlds.MAY)
    for number in range(20):
        start("fulfil", f"o-{number}", 100, ["north"], custom_id=f"o-{number}")
    with transaction() as session:
        session.execute(sa.text("insert into offer (id, seller, year, price) values ('17', 'ann', 2020, 5)"))
    work()
    Path("shop").mkdir()
    Path("shop/marts.py").write_text(doc_pages.blocks("howto/write-reactive-tasks.md")[0].text)


def commands() -> Iterator[tuple[str, str]]:
    for path in sorted((doc_pages.DOCS / "howto").glob("*.md")):
        for typed, _ in doc_pages.typed(f"howto/{path.name}"):
            for command in typed:
                # Nobody works beside, for whom it could be waited.
                words = re.sub(r" --wait\S*", "", command.partition(" > ")[0]).partition("tidemill ")
                if words[0] == "" and not words[2].startswith(LEFT_OUT):
                    yield path.stem, words[2]


def typed(words: list[str]) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run(words)
    if ASKS in err.getvalue():
        return typed([*words, "--yes"])
    return code, out.getvalue(), err.getvalue()


if __name__ == "__main__":
    sys.stdin = io.StringIO()
    prepare()
    for page, command in commands():
        code, out, err = typed(shlex.split(command))
        print(json.dumps({"page": page, "command": command, "code": code, "out": out[-300:], "err": err}), flush=True)
