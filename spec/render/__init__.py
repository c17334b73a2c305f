"""The tables as text: pages, diagrams, a trace of the requirements, JSON. Pure functions, equal output each time.

Every document about a table is made from the table, so that none can say something else.
"""

from kvescrow.spec.render.diagrams import lifecycle_diagram, state_diagram
from kvescrow.spec.render.documents import HEADER, render_documents
from kvescrow.spec.render.expressions import readable
from kvescrow.spec.render.json_form import table_as_json
from kvescrow.spec.render.requirements import Requirement, parse_requirements, unknown_citations
from kvescrow.spec.render.table_page import table_page
from kvescrow.spec.render.tla import GHOSTS, NO_ROW, tla_module
from kvescrow.spec.render.tla_expressions import HELPERS, TlaPrinter, tla_set, tla_value
from kvescrow.spec.render.vocabulary import member_notes, vocabulary_enums

__all__ = [
    "GHOSTS",
    "HEADER",
    "HELPERS",
    "NO_ROW",
    "Requirement",
    "TlaPrinter",
    "lifecycle_diagram",
    "member_notes",
    "parse_requirements",
    "readable",
    "render_documents",
    "state_diagram",
    "table_as_json",
    "table_page",
    "tla_module",
    "tla_set",
    "tla_value",
    "unknown_citations",
    "vocabulary_enums",
]
