"""The reports of all families, a to i, by id, and those that no vector expresses, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping

FAMILIES: Mapping[str, tuple[str, ...]] = {
    "a": ("B01", "B02", "B04", "B05", "B06", "B07", "B08", "B09", "B10", "B11", "B12", "B13", "B14"),
    "b": ("B15", "B16", "B18", "B20", "B21", "B22", "B23", "B24"),
    "c": (
        *("B25", "B26", "B28", "B29", "B30", "B31", "B32", "B33"),
        *("B34", "B35", "B36", "B37", "B38", "B39", "B104"),
    ),
    "d": (
        *("B41", "B42", "B43", "B45", "B46", "B47", "B48", "B50", "B51"),
        *("B52", "B53", "B54", "B55", "B56", "B57", "B100", "B101", "B102"),
    ),
    "e": ("B58", "B59", "B60", "B61", "B62", "B63", "B64"),
    "f": ("B66", "B67", "B68", "B69", "B70", "B71", "B72", "B73", "B74", "B75", "B77", "B103"),
    "g": ("B79", "B80", "B81", "B82", "B83"),
    "h": ("B84", "B85", "B86", "B87", "B89"),
    "i": ("B90", "B91", "B92", "B93", "B95", "B96", "B97", "B98", "B99"),
}
"""Every report of a family. The ids have gaps on purpose and are not in the families' order."""

OUTSIDE: Mapping[str, str] = {}
"""Id -> why the model has no words for it. Empty: each report's essence is a vector."""
