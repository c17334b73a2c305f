"""The design sheet of one specified worker, computed from its configuration (EXP-2, PAG-10).

Its chunk table is the reference's rule at work, so this room may import `reference`, like the experiments do.
"""

from kvescrow.checks.sheet.figures import Sheet, sheet_of
from kvescrow.checks.sheet.page import sheet_page
from kvescrow.checks.sheet.worker import WorkerSpecification, read_worker

__all__ = ["Sheet", "WorkerSpecification", "read_worker", "sheet_of", "sheet_page"]
