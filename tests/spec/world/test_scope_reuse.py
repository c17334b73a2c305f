"""Which published pages a request may reuse, and under which scope it may publish."""

from __future__ import annotations

import pytest

from kvescrow.spec.language.expressions import Kind
from kvescrow.spec.tables.scope_reuse import SCOPE_FIELDS
from kvescrow.spec.vocabulary import Decision, Reason
from tests.field_reports.replies import MISS, PUBLISHED, RECORDED, Answer, refused
from tests.spec.world.conftest import QuestionOf
from tests.spec.world.scope_question import scope

HIT = Answer(Decision.HIT)


def test_a_page_of_the_same_scope_is_reused_and_stays_so(question_of: QuestionOf) -> None:
    """SCO-1: equal in every field, chain and token. Asked again, the answer stands, whatever was asked."""
    question = question_of()
    assert question.look_up(scope(tenant="a"), scope(tenant="a")) == HIT
    assert question.yes
    assert question.look_up(scope(tenant="a"), scope(tenant="a")) == RECORDED
    assert question.look_up(scope(tenant="a"), scope(tenant="b")) == RECORDED
    assert question.look_up(scope(tenant="a"), scope(tenant="a"), matchable=False) == RECORDED
    assert question.yes


@pytest.mark.parametrize("name", SCOPE_FIELDS)
def test_one_field_that_differs_is_a_miss(question_of: QuestionOf, name: str) -> None:
    """SCO-1 SCO-4: the same answer for every field, whichever side has the value."""
    value = True if SCOPE_FIELDS[name] is Kind.BOOLEAN else 1
    question = question_of()
    assert question.look_up(scope(**{name: value}), scope()) == MISS
    assert question.look_up(scope(), scope(**{name: value})) == MISS
    assert not question.yes
    assert question.look_up(scope(**{name: value}), scope(**{name: value})) == HIT


@pytest.mark.parametrize("name", ["matchable", "chain_equal", "tokens_equal"])
def test_other_content_is_a_miss(question_of: QuestionOf, name: str) -> None:
    """SCO-2 PAG-6: an unpublished page, another prefix, or a digest that collides."""
    question = question_of()
    assert question.look_up(scope(tenant="a"), scope(tenant="a"), **{name: False}) == MISS
    assert not question.yes


def test_a_tenant_publishes_for_itself(question_of: QuestionOf) -> None:
    """SCO-3: inside the tenant nobody need allow it."""
    question = question_of()
    assert question.publish(scope(tenant="a"), authorised=False) == PUBLISHED
    assert question.yes
    assert question.publish(scope(tenant="a"), authorised=False) == RECORDED
    assert question.publish(scope(tenant="g", group=True), authorised=False) == RECORDED


def test_publishing_for_a_group_is_an_authorised_act(question_of: QuestionOf) -> None:
    """SCO-3: refused without authority, however often it is asked."""
    question = question_of()
    assert question.publish(scope(tenant="g", group=True), authorised=False) == refused(Reason.FORBIDDEN)
    assert not question.yes
    assert question.publish(scope(tenant="g", group=True), authorised=True) == PUBLISHED
    assert question.yes
