"""A plugin of pytest: runs the tests that it collected once, then again for every mutant of a module.

Each run is a fork, so that nothing is imported twice: in it the code of the changed function is put in the place of the
old one. A mutant is held against the tests that call its function, the quickest first, until one fails. What takes
much more computing time than its tests did, goes round in circles: it is noticed too.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from functools import _lru_cache_wrapper
from importlib import import_module
from inspect import getsource
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import hypothesis
import pytest

from tests.mutation.mutants import Mutant, mutants, outermost

hypothesis.settings.register_profile(
    "mutation",
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
)

#: Seconds of computing, and times what the tests take.
LEAST_TIME, TIMES = 2, 3
#: Of a property: what notices a mutant at all, mostly does with the first ones.
EXAMPLES = 30
MEMORY = 4 << 30
#: Whose caches are emptied.
OURS = ("app.", "triggers.", "stages.", "processes.", "recovery.")

Items = Sequence[pytest.Item]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--mutate", help="the module")
    parser.addoption("--told", help="the file that the fates of its mutants are written to")


@pytest.hookimpl(trylast=True)
def pytest_configure() -> None:
    """After those of the tests themselves."""
    hypothesis.settings.load_profile("mutation")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    module = import_module(session.config.getoption("--mutate"))
    for item in session.items:
        _shorten(item)
    _clear_caches()
    called = _forked(lambda: _recorded(session.items, module))
    if not isinstance(called, dict):
        pytest.exit(f"{called or 'a test that ends the process'} fails without any mutant", returncode=1)
    fates = {
        each.key: _fate(each, module, [(session.items[at], took) for at, took in called.get(each.function, ())])
        for each in mutants(getsource(module), str(module.__file__))
    }
    with open(session.config.getoption("--told"), "w") as file:
        json.dump(fates, file)
    return True


def _shorten(item: pytest.Item) -> None:
    test: Any = getattr(item, "obj", None)
    own = getattr(test, "_hypothesis_internal_use_settings", None)
    if own is not None:
        function = getattr(test, "__func__", test)
        shorter = hypothesis.settings(own, max_examples=min(EXAMPLES, own.max_examples))
        function._hypothesis_internal_use_settings = shorter


def _fate(mutant: Mutant, module: ModuleType, tests: list[tuple[pytest.Item, float]]) -> str:
    if not tests:
        return "never called"
    tests.sort(key=lambda each: each[1])

    def passes() -> bool:
        _limit(sum(took for _, took in tests))
        _put_in(mutant, module)
        return _passes([item for item, _ in tests])

    return "survived" if _forked(passes) else "killed"


def _forked(work: Callable[[], object]) -> Any:
    """What it gave; None, if it died."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            nowhere = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(nowhere, stream)
            with open(writing, "w") as told:
                json.dump(work(), told)
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading) as file:
        found = file.read()
    os.waitpid(child, 0)
    return json.loads(found) if found else None


def _limit(took: float) -> None:
    seconds = int(LEAST_TIME + TIMES * took)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def _passes(items: Items) -> bool:
    for item, following in zip(items, [*items[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if item.session.testsfailed:
            return False
    return True


def _recorded(items: Items, module: ModuleType) -> dict[str, list[tuple[int, float]]] | str:
    """By function of the module: the places of the tests that call it, and the seconds that each takes. Or the test
    that fails."""
    file, called = module.__file__, set[str]()
    found: dict[str, list[tuple[int, float]]] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename == file:
            called.add(outermost(frame.f_code.co_qualname))

    for at, (item, following) in enumerate(zip(items, [*items[1:], None], strict=True)):
        _clear_caches()
        called.clear()
        begun = time.process_time()
        sys.setprofile(note)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        sys.setprofile(None)
        took = time.process_time() - begun
        if item.session.testsfailed:
            return item.nodeid
        for function in called:
            found.setdefault(function, []).append((at, took))
    return found


def _put_in(mutant: Mutant, module: ModuleType) -> None:
    """Also into the functions that functions have made."""
    _clear_caches()
    file = module.__file__
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and each.__code__.co_filename == file:
            code = mutant.codes.get((each.__code__.co_qualname, each.__code__.co_firstlineno))
            if code is not None and _fits(code, each.__code__):
                each.__code__ = code


def _fits(new: CodeType, old: CodeType) -> bool:
    return len(new.co_freevars) == len(old.co_freevars)


def _clear_caches() -> None:
    """What the old code made must not answer for the new."""
    for each in gc.get_objects():
        if isinstance(each, _lru_cache_wrapper) and str(each.__module__).startswith(OURS):
            each.cache_clear()
