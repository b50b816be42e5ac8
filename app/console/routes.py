"""From endpoints to routes; and for each path, an answer to the methods that it does not have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Route

from app.console.calls import Calls
from app.console.endpoint import Endpoint

#: The name of what answers that a path has no such method.
NO_METHOD = "no_method"


def of_api(endpoints: Iterable[Endpoint], calls: Calls) -> Iterator[BaseRoute]:
    # `search` is not the number of a process: where a path is without places, it is the one that is meant.
    for path, found in groupby(
        sorted(endpoints, key=lambda each: ("{" in each.path, each.path)), lambda each: each.path
    ):
        # The name of an actor may hold a slash, which is one again after decoding.
        place, methods = path.replace("{name}", "{name:path}"), []
        for each in found:
            methods.append(each.method)
            yield Route(place, calls.handler(each), methods=[each.method], name=each.name)
        yield Route(place, _NoMethod(methods), name=NO_METHOD)


class _NoMethod:
    """An application rather than a function, which would be for some methods only."""

    def __init__(self, methods: Iterable[str]) -> None:
        self._allowed = ", ".join(sorted({*methods, *(["HEAD"] if "GET" in methods else [])}))

    async def __call__(self, *_: object) -> None:
        raise HTTPException(405, headers={"Allow": self._allowed})
