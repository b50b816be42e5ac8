"""Requests of all kinds, made from the published document by schemathesis, and what must hold of each answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi import checks

#: What the document says of the answers is so, and what it says of the requests is asked for.
ALWAYS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]
REFUSING = [*ALWAYS, checks.negative_data_rejection]


@dataclass
class Fuzzer:
    url: str
    document: Mapping[str, Any]
    token: str
    #: What there is, by the name of the field or the place where it is asked for.
    real: Mapping[str, Sequence[Any]]
    #: How often each operation was answered with each status.
    answers: dict[str, Counter[int]] = field(default_factory=dict)
    #: What was found, each with the request that shows it.
    failures: list[str] = field(default_factory=list)

    def run(self, mode: GenerationMode, examples: int) -> None:
        with requests.Session() as session:
            session.headers["Authorization"] = f"Bearer {self.token}"
            schema: Any = schemathesis.openapi.from_dict(dict(self.document))
            for found in schema.get_all_operations():
                self._run_one(found.ok(), mode, examples, session)

    def _run_one(self, operation: Any, mode: GenerationMode, examples: int, session: requests.Session) -> None:
        label = operation.label
        answers = self.answers.setdefault(label, Counter())
        wanted = ALWAYS if mode is GenerationMode.POSITIVE else REFUSING

        def body(case: Case[Any], choice: Sequence[int]) -> None:
            if mode is GenerationMode.POSITIVE:
                self._make_real([case.path_parameters, case.query, case.body], cycle(choice))
            if isinstance(case.body, dict) and "wait" in case.body:
                # Waiting is tried elsewhere.
                case.body["wait"] = "0s"
            response = case.call(self.url, session=session, timeout=60)
            answers[response.status_code] += 1
            case.validate_response(response, checks=wanted)

        try:
            takes_any = operation.path_parameters or operation.query or operation.headers or operation.body
            _bounded(body, operation.as_strategy(generation_mode=mode), examples if takes_any else 2)
        except FailureGroup as found:
            self.failures.append(f"{label}: {found}")

    def _make_real(self, value: Any, choices: Iterator[int]) -> None:
        """Some of the places and fields, so that the answer is not always that there is no such thing."""
        match value:
            case dict():
                for name in sorted(value):
                    found = [each for each in self.real.get(name, ()) if type(each) is type(value[name])]
                    if found and (which := next(choices)):
                        value[name] = found[which % len(found)]
                    else:
                        self._make_real(value[name], choices)
            case list():
                for each in value:
                    self._make_real(each, choices)
            case _:
                pass


def _bounded(body: Callable[[Case[Any], Sequence[int]], None], strategy: Any, examples: int) -> None:
    choices = st.lists(st.integers(0, 5), min_size=6, max_size=6)
    run = settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )(given(strategy, choices)(body))
    run()
