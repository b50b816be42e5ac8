"""The code of how-tos, run as it stands there: `python -m tests.kit.howto PAGE=DATABASE_URL …`, a process for each.

A page's blocks of Python are one module, as a reader would put it together; its SQL is sent in between. Says `PAGE: ok`
for each, or what went wrong.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import sys
import traceback
from contextlib import nullcontext
from functools import partial
from types import ModuleType
from typing import Any

import psycopg2
from sqlalchemy.engine import make_url

from app.celery import app as celery_app
from app.settings import settings
from tests.kit import doc_pages
from tests.kit.howto_work import jobs_beside
from tests.kit.howto_worlds import WORLDS
from tidemill import transaction


def run(page: str) -> None:
    world = WORLDS[page]
    module = ModuleType(world.module)
    sys.modules[world.module] = module
    celery_app.finalize()
    world.before(module)
    blocks = doc_pages.blocks(f"howto/{page}.md")
    with jobs_beside(partial(_declare, module, blocks)) if world.beside else nullcontext():
        for number, block in enumerate(blocks, 1):
            if block.language == "python" and number not in world.left_out:
                exec(compile(block.text, f"{page}.md:{number}", "exec"), module.__dict__)  # noqa: S102
            if block.language == "sql":
                _send(block.text)
        _await(module)
        world.after(module)


def _declare(module: ModuleType, blocks: list[doc_pages.Block]) -> None:
    """What a worker that imports the page would have: its functions, without what it does."""
    for block in blocks:
        if block.language == "python":
            tree = ast.parse(block.text)
            tree.body = [each for each in tree.body if isinstance(each, ast.ImportFrom | ast.FunctionDef)]
            exec(compile(tree, "worker", "exec"), module.__dict__)  # noqa: S102


def _send(text: str) -> None:
    url = make_url(str(settings().resolved_database_url())).set(drivername="postgresql")
    connection = psycopg2.connect(url.render_as_string(hide_password=False))
    connection.autocommit = True
    with connection.cursor() as cursor:
        cursor.execute(text)
    connection.close()


class _Session:
    """An asynchronous session, over one that is not."""

    def __init__(self, session: Any) -> None:
        self._session = session

    async def execute(self, *args: Any) -> Any:
        return self._session.execute(*args)


def _await(module: ModuleType) -> None:
    for function in [each for each in vars(module).values() if inspect.iscoroutinefunction(each)]:
        with transaction() as session:
            asyncio.run(function(_Session(session)))


def _child(page: str, url: str) -> int:
    os.environ["TIDEMILL_DATABASE_URL"] = url
    settings.cache_clear()
    try:
        run(page)
    except BaseException:  # noqa: BLE001 - whatever it is, the parent tells of it
        traceback.print_exc()
        return 1
    return 0


def main() -> None:
    for word in sys.argv[1:]:
        page, _, url = word.partition("=")
        child = os.fork()
        if not child:
            code = _child(page, url)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(f"{page}: {'ok' if status == 0 else f'failed with {status}'}", flush=True)


if __name__ == "__main__":
    main()
