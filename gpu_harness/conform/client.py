"""What clients see: the tokens that they are given, watched from their side (LIF-6)."""

from kvescrow.gpu_harness.evidence import Evidence, EvidenceKind, Finding, from_findings
from kvescrow.spec.vocabulary import Key


class Clients:
    """Every client of a run."""

    def __init__(self) -> None:
        self._cancelled: set[Key] = set()
        self._late: list[Finding] = []
        self.tokens = 0
        """Tokens given in all."""

    def cancel_accepted(self, key: Key) -> None:
        """The ledger has accepted the client's cancel: nothing may come after this."""
        self._cancelled.add(key)

    def give(self, key: Key, request: int, token: int) -> None:
        """A client is given a token; `request` is the generation that sampled it."""
        self.tokens += 1
        if key in self._cancelled:
            self._late.append(
                Finding(EvidenceKind.OUTPUT_AFTER_CANCEL, -1, request, -1, "nothing after the cancel", f"token {token}")
            )

    @property
    def evidence(self) -> Evidence:
        """OUTPUT_AFTER_CANCEL for each token that came too late."""
        return from_findings(self._late)
