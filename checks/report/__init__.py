"""A static site for reviewers: tables, diagrams, evidence by row and law, counterexamples, requirements, figures."""

from kvescrow.checks.report.counterexamples import Counterexample, read_counterexamples
from kvescrow.checks.report.evidence import Evidence, read_evidence, read_json
from kvescrow.checks.report.site import Contents, Document, Measurement, Versions, site

__all__ = [
    "Contents",
    "Counterexample",
    "Document",
    "Evidence",
    "Measurement",
    "Versions",
    "read_counterexamples",
    "read_evidence",
    "read_json",
    "site",
]
