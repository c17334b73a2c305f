"""Every word has a meaning in its source."""

from __future__ import annotations

from enum import Enum

import pytest

from kvescrow.spec import vocabulary
from kvescrow.spec.render import member_notes, vocabulary_enums
from kvescrow.spec.tables.registry import ALL_TABLES
from kvescrow.spec.vocabulary import Reason

ENUMS = vocabulary_enums(ALL_TABLES)


class Undocumented(Enum):
    """Has a member that says nothing."""

    SAID = 1
    """It is said."""
    UNSAID = 2


@pytest.mark.parametrize("enum", ENUMS, ids=lambda enum: enum.__name__)
def test_every_member_has_a_docstring(enum: type[Enum]) -> None:
    assert list(member_notes(enum)) == [member.name for member in enum]
    assert all(note.endswith(".") for note in member_notes(enum).values())
    assert enum.__doc__


def test_no_enum_of_the_vocabulary_is_left_out() -> None:
    exported = {
        each
        for each in (getattr(vocabulary, name) for name in vocabulary.__all__)
        if isinstance(each, type) and issubclass(each, Enum)
    }
    assert exported <= set(ENUMS)
    assert Reason in ENUMS


def test_a_member_without_docstring_is_noticed() -> None:
    assert member_notes(Undocumented) == {"SAID": "It is said."}
