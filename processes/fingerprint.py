"""What is the same of failures that differ in ids, numbers and quoted text only, or in the row that Postgres did not
take; and the words of a message. Pure.

The patterns are read by Python and by Postgres, which makes the column `broken_task.fingerprint` of them: they keep to
what both understand alike, and no match depends on which alternative is tried first.
"""

from __future__ import annotations

import re

#: Of a message, no more is looked at; and of what stays of it, no more counts.
READ, LINE = 2_000, 300
#: From a quote that opens to the one that closes; or to the end, where the message was cut.
_QUOTED = r"""(?<![A-Za-z0-9_])(?:'[^']*(?:'|\Z)|"[^"]*(?:"|\Z))"""
#: A word that holds a digit, such as a number, an id or a part of one, and what goes on after a dot or a colon.
_NUMBERED = r"(?<![A-Za-z0-9_-])[A-Za-z0-9_-]*[0-9][A-Za-z0-9_-]*(?:[.:,+][0-9][A-Za-z0-9_-]*)*"
#: An id that happens to have no digit.
_HEX = r"(?<![A-Za-z0-9_-])[a-fA-F-]{8,}(?![A-Za-z0-9_-])"
#: The row, or its key, that Postgres did not take: text without quotes, up to the statement or the place in a function.
_ROW = r"(?:[Ff]ailing row contains |Key \([^\n]*\)=)\((?:[^\n]|\n(?!\[SQL: |CONTEXT: ))*"
#: Of a statement, from its first parameter: how many follow differs too. A percent sign is one to the driver as well.
_PARAMETERS = r"(?:\u0025\([A-Za-z0-9_]+\)s|\n\[parameters: )(?:.|\n)*"
VARIES = f"{_QUOTED}|{_NUMBERED}|{_HEX}|{_ROW}|{_PARAMETERS}"
#: Of such, several in a row.
LIST = "#(?:, ?#)+"
_VARIES, _LIST = re.compile(VARIES), re.compile(LIST)
#: How a fingerprint is written.
FORM = re.compile(r"[0-9a-f]{16}")

#: What joins words to hosts, paths, addresses and tags, each of which Postgres would take for one word.
JOINS = "-_./:@+~=<>&#"
_APART = str.maketrans(JOINS, " " * len(JOINS))
#: Of a message, no more is indexed.
INDEXED = 4_000


def kind_of(error: str) -> str:
    """The same of errors that are told alike but for ids, numbers, quoted text, and rows and parameters of statements.

    >>> kind_of("KeyError: 'o-998'"), kind_of("order o-17 of 2030-07-01T12:00:00Z: 503")
    ('KeyError: #', 'order # of #: #')
    """
    return _LIST.sub("#", _VARIES.sub("#", error[:READ]))[:LINE]


def words(text: str) -> list[str]:
    """What is searched for: each with its words apart, as they are indexed.

    >>> words("price-17  of: 'kiosk_pay'")
    ['price 17', 'of ', "'kiosk pay'"]
    """
    parts = (each.translate(_APART) for each in text.split())
    return [each for each in parts if any(letter.isalnum() for letter in each)]


def fingerprint_sql() -> str:
    """Of a broken task, for the generated column: 16 hexadecimal digits."""
    pattern = VARIES.replace("'", "''")
    varies = f"regexp_replace(left(message, {READ}), '{pattern}', '#', 'g')"
    kind = f"left(regexp_replace({varies}, '{LIST}', '#', 'g'), {LINE})"
    return f"left(md5(actor || chr(10) || type || chr(10) || {kind}), 16)"


def words_sql(text: str) -> str:
    """Of the text that this expression gives, as it is indexed and searched."""
    spaces = " " * len(JOINS)
    return f"to_tsvector('simple'::regconfig, translate(left({text}, {INDEXED}), '{JOINS}', '{spaces}'))"


#: The expressions of the indexes.
PROCESS_WORDS = words_sql("error")
BROKEN_WORDS = words_sql("(type || ': ') || message")
