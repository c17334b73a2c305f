"""One event of a page pool, as a call that both sides understand."""

from attrs import frozen

from kvescrow.checks.fuzz.differences import shown
from kvescrow.spec.world.pages import PROMISE_EVENTS


@frozen
class Call:
    """One event of a page, with the arguments of `PageTarget`'s method of the same name."""

    method: str
    arguments: tuple[object, ...]
    named: tuple[tuple[str, object], ...] = ()

    def __str__(self) -> str:
        shown_arguments = [shown(argument) for argument in self.arguments]
        shown_arguments += [f"{name}={shown(value)}" for name, value in self.named]
        return f"{self.method}({', '.join(shown_arguments)})"

    @property
    def page(self) -> int | None:
        """Return the page that it is about, if any."""
        if self.method in PROMISE_EVENTS:
            return None
        return next(argument for argument in self.arguments if isinstance(argument, int))

    @property
    def holder(self) -> str | None:
        """Return the holder that acts, if any."""
        first = self.arguments[0]
        return first if isinstance(first, str) else None

    def on(self, subject: object) -> object:
        """Return what `subject` answers."""
        return getattr(subject, self.method)(*self.arguments, **dict(self.named))
