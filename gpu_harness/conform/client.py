"""What clients see: what is launched for them and the tokens that they are given, from their side (LIF-3, LIF-6)."""

from collections.abc import Callable, Sequence

from kvescrow.gpu_harness.evidence import Evidence, EvidenceKind, Finding, from_findings
from kvescrow.spec.vocabulary import Key


class Clients:
    """Every client of a run, on the clock that it is given; on none it is always 0."""

    def __init__(self, clock: Callable[[], int] = lambda: 0) -> None:
        self._clock = clock
        self._cancelled: dict[Key, int] = {}
        self._given: dict[Key, tuple[int, list[tuple[int, int]]]] = {}
        self._late: list[Finding] = []
        self.tokens = 0
        """Tokens given in all."""

    def cancel_accepted(self, key: Key) -> None:
        """The ledger has accepted the client's cancel: nothing may come after this."""
        self._cancelled.setdefault(key, self._clock())

    def launched(self, key: Key, request: int, ticket: int) -> None:
        """A step is launched for a client's request."""
        if key in self._cancelled:
            kind = EvidenceKind.LAUNCH_AFTER_CANCEL
            self._late.append(Finding(kind, -1, request, ticket, "no launch after the cancel", "a launch"))

    def give(self, key: Key, request: int, token: int) -> None:
        """A client is given a token; `request` is the generation that sampled it."""
        self.tokens += 1
        if self._given.get(key, (0, []))[0] != request:
            self._given[key] = request, []
        self._given[key][1].append((self._clock(), token))
        if key in self._cancelled:
            self._late.append(
                Finding(EvidenceKind.OUTPUT_AFTER_CANCEL, -1, request, -1, "nothing after the cancel", f"token {token}")
            )

    def given(self, key: Key) -> Sequence[tuple[int, int]]:
        """Return (time, token) of what a client was given by the last generation that gave it anything."""
        return self._given.get(key, (0, []))[1]

    def cancelled(self, key: Key) -> int | None:
        """Return when a client's cancel was accepted; None where none was."""
        return self._cancelled.get(key)

    @property
    def evidence(self) -> Evidence:
        """OUTPUT_AFTER_CANCEL for each token that came too late, LAUNCH_AFTER_CANCEL for each launch."""
        return from_findings(self._late)
