"""Where the specification and an implementation differ: replies field by field, snapshots down to the value."""

from collections.abc import Iterator, Mapping
from enum import Enum

from attrs import fields, frozen, has


@frozen
class Difference:
    """One value that the specification and the implementation do not agree on."""

    path: str
    """Where it stands: `reply.reason`, `snapshot.tenants[a].active`."""
    specification: str
    implementation: str

    def __str__(self) -> str:
        return f"{self.path}: specification {self.specification}, implementation {self.implementation}"


def differences(path: str, specified: object, found: object) -> Iterator[Difference]:
    """Yield each place below `path` at which the two values differ, as deep as they have the same shape."""
    if specified == found:
        return
    kind = type(specified)
    if kind is type(found) and has(kind):
        for attribute in fields(kind):
            name = attribute.name
            yield from differences(f"{path}.{name}", getattr(specified, name), getattr(found, name))
    elif isinstance(specified, Mapping) and isinstance(found, Mapping):
        for key in sorted({*specified, *found}, key=str):
            absent = object()
            one, other = specified.get(key, absent), found.get(key, absent)
            if one is absent or other is absent:
                yield Difference(
                    f"{path}[{shown(key)}]", *("absent" if v is absent else shown(v) for v in (one, other))
                )
            else:
                yield from differences(f"{path}[{shown(key)}]", one, other)
    elif isinstance(specified, tuple) and isinstance(found, tuple) and len(specified) == len(found):
        for place, (one, other) in enumerate(zip(specified, found, strict=True)):
            yield from differences(f"{path}[{place}]", one, other)
    else:
        yield Difference(path, shown(specified), shown(found))


def shown(value: object) -> str:
    """Return `value` as a short text."""
    kind = type(value)
    match value:
        case Enum():
            return str(value.value)
        case frozenset():
            return "{" + ", ".join(sorted(shown(part) for part in value)) + "}"
        case tuple():
            return "(" + ", ".join(shown(part) for part in value) + ")"
        case _ if has(kind):
            parts = (
                f"{attribute.name}={shown(getattr(value, attribute.name))}"
                for attribute in fields(kind)
                if getattr(value, attribute.name) != attribute.default
            )
            return f"{kind.__name__}({', '.join(parts)})"
        case bytes():
            return f"{len(value)} bytes"
        case _:
            return repr(value)


class Disagreement(Exception):
    """A step after which specification and implementation differ, or after which a law does not hold."""

    def __init__(self, step: str, found: tuple[Difference, ...]) -> None:
        super().__init__(f"{step}\n" + "\n".join(f"  {difference}" for difference in found))
        self.step = step
        self.differences = found
