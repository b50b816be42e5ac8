"""What a page is, and what an act is: something that changes when its question was answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.console.web.fields import Fields
from app.tokens import Action, Holder


@dataclass(frozen=True)
class Visit:
    """Somebody looks at a page, or does something, and may."""

    holder: Holder
    #: The path as it is asked for, and what stands behind the question mark.
    address: str
    #: The whole numbers of the path.
    numbers: Mapping[str, int] = field(default_factory=dict)
    query: Fields = field(default_factory=Fields)
    form: Fields = field(default_factory=Fields)

    @property
    def may_act(self) -> bool:
        return self.holder.may(Action.OPERATE, "")


@dataclass(frozen=True)
class Page:
    """`read` only reads, in a thread; what it returns fills the template."""

    name: str
    #: Names in braces are whole numbers. What is named by text belongs behind the question mark.
    path: str
    template: str
    read: Callable[[Visit], Mapping[str, Any]]


@dataclass(frozen=True)
class Input:
    """A field of a question."""

    name: str
    label: str
    value: str = ""
    hint: str = ""
    #: `text`, `number`, `checkbox`, `select` with `options`, or `area`.
    kind: str = "text"
    options: Sequence[tuple[str, str]] = ()
    required: bool = False


REASON = Input("reason", "Why", hint="Kept in the audit.")


@dataclass(frozen=True)
class Question:
    """What is asked before something is changed: what it will do, and what has to be said for it."""

    title: str
    #: What will be, in a sentence each.
    says: Sequence[str]
    #: On the button.
    answer: str
    inputs: Sequence[Input] = ()
    #: Much is changed, or it cannot be undone.
    danger: bool = False
    #: Why it cannot be done just now: there is no button then.
    obstacle: str | None = None
    #: Where "no" leads to.
    back: str = "/"
    #: For a template of its own.
    more: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Undo:
    """The act that puts it back, and what is sent to it; done without another question."""

    act: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    label: str = "Undo"


@dataclass(frozen=True)
class Done:
    says: str
    #: The address that is shown next.
    to: str
    undo: Undo | None = None


@dataclass(frozen=True)
class Act:
    """`ask` only reads. `do` changes, by functions that audit, and raises what is to be told: nothing was changed."""

    name: str
    path: str
    ask: Callable[[Visit], Question]
    do: Callable[[Visit], Done]
    template: str = "question.html"
