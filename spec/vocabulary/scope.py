"""The scope inside which a published page may be reused (SCO-1)."""

from attrs import frozen


@frozen
class PrefixScope:
    """Everything that the content of a KV page depends on, besides the tokens; compared field by field.

    Two requests share pages only when every field is equal. There is no concatenated form, since joined fields
    without lengths collide ("org_1" + "2345" and "org_12345" + ""). `None` is a value of its own: a request
    without adapter never matches one with an adapter.
    """

    tenant: str
    """Tenant, or the published group's name where `group` is true."""
    group: bool = False
    """Whether `tenant` names a published group (SCO-3)."""
    model: str = ""
    """Model identity."""
    weight_epoch: int = 0
    """Counts weight updates of the model in this process (SCO-5)."""
    adapter: str | None = None
    """Adapter name, or None for the base model."""
    adapter_generation: int = 0
    """Counts loads of that adapter name, since a reload may change its content."""
    tokenizer: str = ""
    """Tokenizer identity."""
    position_scheme: str = ""
    """Position encoding and its scaling."""
    kv_dtype: str = ""
    """Storage type of keys and values."""
    page_length: int = 16
    """Tokens a page."""
    salt: str = ""
    """Caller's salt; separates caches inside one tenant."""
    media: tuple[str, ...] = ()
    """Digests of media that stand behind placeholder tokens."""
