"""What was asked for in the address, or sent with a form: checked when it is read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

from app.errors import BadRequest, TooLarge
from app.near import shown

#: Of a form, and of the part of an address behind the question mark.
FORM_LIMIT, QUERY_LIMIT = 64 * 1024, 8 * 1024
FIELDS_LIMIT, TEXT_LIMIT = 200, 2_000
LARGEST = 2**63 - 1
_NUMBER = re.compile(r"-?[0-9]{1,19}")


def address(path: str, **words: object) -> str:
    """With these behind the question mark; None leaves one out."""
    given = {word: str(value) for word, value in words.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path


@dataclass(frozen=True)
class Fields:
    pairs: tuple[tuple[str, str], ...] = ()

    @classmethod
    def read(cls, text: bytes, limit: int) -> Fields:
        if len(text) > limit:
            raise TooLarge(f"{len(text)} bytes were sent, more than {limit}")
        try:
            pairs = parse_qsl(
                text.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=FIELDS_LIMIT
            )
        except ValueError:
            raise BadRequest(f"what was sent is no form in UTF-8 of at most {FIELDS_LIMIT} fields") from None
        if any("\x00" in word for pair in pairs for word in pair):
            raise BadRequest("what was sent has a NUL in it")
        return cls(tuple(pairs))

    def text(self, name: str, most: int = TEXT_LIMIT) -> str | None:
        """Without blanks around it; None for nothing."""
        found = next((value for word, value in self.pairs if word == name), "").strip()
        if len(found) > most:
            raise TooLarge(f"{name} is {len(found)} characters long, more than {most}")
        return found or None

    def needed(self, name: str, most: int = TEXT_LIMIT) -> str:
        if (found := self.text(name, most)) is None:
            raise BadRequest(f"{name} is needed")
        return found

    def texts(self, name: str) -> list[str]:
        found = [value.strip() for word, value in self.pairs if word == name]
        if any(len(each) > TEXT_LIMIT for each in found):
            raise TooLarge(f"a value of {name} is longer than {TEXT_LIMIT} characters")
        return [each for each in found if each]

    def number(self, name: str, least: int = 1, most: int = LARGEST) -> int | None:
        if (text := self.text(name)) is None:
            return None
        if not _NUMBER.fullmatch(text) or not least <= int(text) <= most:
            raise BadRequest(f"{name}={shown(text)} must be a whole number from {least} to {most}")
        return int(text)

    def choice(self, name: str, among: Sequence[str]) -> str | None:
        text = self.text(name)
        if text is not None and text not in among:
            raise BadRequest(f"{name}={shown(text)} is none of {', '.join(among)}")
        return text

    def has(self, name: str) -> bool:
        """Also an empty one."""
        return any(word == name for word, _ in self.pairs)

    def flag(self, name: str) -> bool:
        return self.text(name) is not None

    def given(self) -> dict[str, str]:
        """The last of each name: what a form is filled with again."""
        return dict(self.pairs)

    def changed(self, changes: Mapping[str, object]) -> str:
        """As the end of an address, with other values; None leaves one out."""
        kept = [(word, value) for word, value in self.pairs if word not in changes and value]
        return urlencode([*kept, *((word, str(value)) for word, value in changes.items() if value is not None)])
