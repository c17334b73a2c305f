"""When a cost model stops being true: a test on the stream of its residuals (CHK-5).

The test is Page's cumulative sum, on both sides. A residual is how far a measured step lies above the predicted one,
in thousandths of that, and the unit is the model's stated band. A sum grows by what lies more than half a band off, and
the model is declared failed when it passes two and a half bands. One residual counts for at most one band, so that a
few steps that something else held up are no drift.

If residuals are normal and the band is two standard deviations, that is the textbook chart with an allowance of one
standard deviation and a threshold of five: a false alarm in some tens of thousands of steps, and a shift of one band
found in about ten. A model that is failed stays failed until it is calibrated anew.
"""

from attrs import define, field, frozen, validators

from kvescrow.reference.scheduler.cost import PERMILLE


@frozen
class Alarm:
    """What ended the trust."""

    step: int
    """How many residuals were seen, this one included."""
    slower: bool
    """Whether steps take longer than predicted; otherwise they take less."""


@define
class DriftDetector:
    """Page's test over the residuals of one model. `band` is the model's, in thousandths."""

    band: int = field(validator=[validators.instance_of(int), validators.ge(1)])
    alarm: Alarm | None = None
    seen: int = 0
    _above: int = 0
    _below: int = 0

    @property
    def failed(self) -> bool:
        """Whether the model is declared failed."""
        return self.alarm is not None

    def observe(self, predicted: int, measured: int) -> bool:
        """Take in one step, with predicted and measured durations in microseconds; return whether the model failed."""
        self.seen += 1
        # Doubled, so that half a band is an integer.
        residual = 2 * (measured - predicted) * PERMILLE // max(1, predicted)
        clipped = max(-2 * self.band, min(2 * self.band, residual))
        self._above = max(0, self._above + clipped - self.band)
        self._below = max(0, self._below - clipped - self.band)
        if self.alarm is None and max(self._above, self._below) > 5 * self.band:
            self.alarm = Alarm(self.seen, slower=self._above > self._below)
        return self.failed
