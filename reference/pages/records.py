"""The records of a page pool: pages, holders, scopes' accounts, and the lists that pages are linked into."""

from collections.abc import Iterable, Iterator

from attrs import Factory, define

from kvescrow.spec.vocabulary import PageState, PrefixScope


@define(eq=False)
class Page:
    """One page, or the root of a scope, which stands before its first pages with number `ROOT`."""

    number: int
    state: PageState = PageState.FREE
    holders: "set[Holder]" = Factory(set)
    """References are the set of holders, never a bare count (PAG-3)."""
    readers: int = 0
    writers: int = 0
    computed: bool = False
    spoiled: bool = False
    generation: int = 0
    """Counts grants, so that one use of the page is told from the next."""
    account: "ScopeAccount | None" = None
    """The account of the scope that the content belongs to."""
    chain: bytes | None = None
    """Digest under which it is in the index; None where it is not, so that tag and index are cleared at once."""
    tokens: bytes = b""
    parent: "Page | None" = None
    children: int = 0
    """Published pages that follow it."""
    busy: int = 0
    """Those of its children that are not cached; while there are any, it could not be evicted (PAG-1, PAG-8)."""
    before: "Page" = Factory(lambda self: self, takes_self=True)
    after: "Page" = Factory(lambda self: self, takes_self=True)
    """Neighbours in the list that it is linked into; itself where it is in none."""


ROOT = -1


@define(eq=False)
class Holder:
    """One admitted execution."""

    name: str
    account: "ScopeAccount"
    promised: int = 0
    held: dict[Page, None] = Factory(dict)
    """Its private and shared pages, in the order in which it got them."""


@define(eq=False)
class ScopeAccount:
    """One scope: its part of the prefix index, and what is charged to it (PAG-5, SCO-3)."""

    scope: PrefixScope
    root: Page
    index: dict[bytes, Page] = Factory(dict)
    """Published pages by chain digest."""
    live: bool = True
    shared: int = 0
    """Pages that are charged to it now, each once, however many hold it."""
    holders: int = 0
    """Admitted holders, so that an account without use can be forgotten."""


class PageList:
    """A ring of linked pages. Each operation takes constant time; a page is in one list at most."""

    def __init__(self) -> None:
        self.end = Page(ROOT)
        """Stands after the last page and before the first."""

    def __iter__(self) -> Iterator[Page]:
        page = self.end.after
        while page is not self.end:
            yield page
            page = page.after

    def first(self) -> Page | None:
        """Return the page in front; None where the list is empty."""
        page = self.end.after
        return None if page is self.end else page

    def append(self, page: Page) -> None:
        """Link an unlinked page at the back."""
        self.extend((page,))

    def extend(self, pages: Iterable[Page]) -> None:
        """Link unlinked pages at the back, in their order."""
        end = self.end
        last = end.before
        for page in pages:
            page.before = last
            last.after = page
            last = page
        last.after = end
        end.before = last

    def push(self, page: Page) -> None:
        """Link an unlinked page in front."""
        end = self.end
        first = end.after
        page.before, page.after = end, first
        first.before = end.after = page


def unlink(page: Page) -> None:
    """Take `page` out of the list that it is in, if any."""
    before, after = page.before, page.after
    before.after, after.before = after, before
    page.before = page.after = page
