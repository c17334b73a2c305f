"""RAGPulse JSON Lines: requests of a question-answering service, their prompts put together from retrieved parts.

    {"timestamp": "82", "input_length": 3112, "output_length": 192, "hash_ids": {"sys_prompt": [8302, 14332, 15199],
     "passages_ids": [7398, 7370], "history": [15200], "web_search": [], "user_input": [26923]}, "session_id": "..."}

`timestamp` is text: whole seconds from the start of a week. Where it steps back by days, the next week begins.
`hash_ids` names chunks of at most 512 tokens, whose lengths stand in five files beside the trace. Chunks have any
length, so the prompt is cut into blocks of `BLOCK_LENGTH` tokens here, an equal block id again meaning an equal whole
prefix.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kvescrow.reference.traces.fields import (
    MAXIMUM_BLOCK_ID,
    Place,
    integer_cell,
    json_object,
    known_fields,
    nonempty_text,
    read_lines,
    required,
    shown,
    token_count,
    whole_number,
)
from kvescrow.reference.traces.record import SINGLE_TENANT, TraceRequest
from kvescrow.spec.vocabulary import MICROSECONDS_PER_SECOND, UserError

BLOCK_LENGTH = 64
"""Tokens a block."""
WEEK_SECONDS = 7 * 24 * 3600
"""A clock that steps back by more than half of it has begun again; lines out of order step back by less."""
FIELDS = frozenset({"timestamp", "input_length", "output_length", "hash_ids", "session_id"})
PARTS = {
    "sys_prompt": ("1_sys_prompt.jsonl", "sys_prompt_id"),
    "passages_ids": ("2_passages.jsonl", "passage_id"),
    "history": ("3_history.jsonl", "history_id"),
    "web_search": ("5_web_search.jsonl", "web_search_id"),
    "user_input": ("4_user_input.jsonl", "user_input_id"),
}
"""The parts of a prompt in order: the file with their lengths, and the name of the id in it."""
ORDER_REMARK = (
    "The parts of a prompt are taken to stand in the order of their fields, and the 6 to 12 tokens that belong to none "
    "of them after the last."
)

Chunk = tuple[object, int]
"""What names some tokens, and how many there are."""


class RagPulseReader:
    """Reads one file, and the five files of lengths beside it; `remarks` is complete when `requests` is exhausted."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._blocks: dict[tuple[int, tuple[tuple[object, int, int], ...]], int] = {}
        self._weeks: list[int] = []
        """The lines at which a week begins, the first one not counted."""

    def requests(self) -> Iterator[TraceRequest]:
        """Yield the requests in the order of the file; arrivals count from the start of its first week."""
        lengths = {part: chunk_lengths(self._path.with_name(file), name) for part, (file, name) in PARTS.items()}
        latest = 0
        for place, text in read_lines(self._path):
            members = json_object(place, text)
            known_fields(place, members, FIELDS)
            seconds = whole_seconds(place, required(place, members, "timestamp"))
            if latest - seconds > WEEK_SECONDS // 2:
                self._weeks.append(place.line)
            latest = seconds
            input_tokens = token_count(place, "input_length", required(place, members, "input_length"))
            chunks = chunks_of(place, required(place, members, "hash_ids"), lengths)
            yield TraceRequest(
                request=f"line-{place.line}",
                tenant=SINGLE_TENANT,
                arrival=(seconds + len(self._weeks) * WEEK_SECONDS) * MICROSECONDS_PER_SECOND,
                input_tokens=input_tokens,
                output_tokens=token_count(place, "output_length", required(place, members, "output_length")),
                block_ids=self._block_ids(whole_prompt(place, chunks, input_tokens)),
                block_length=BLOCK_LENGTH,
            )

    def remarks(self) -> list[str]:
        """Return what was taken to be so, and where a week was added."""
        return [
            ORDER_REMARK,
            *(f"The clock steps back at line {line}: what follows is a week later." for line in self._weeks),
        ]

    def _block_ids(self, chunks: Sequence[Chunk]) -> tuple[int, ...]:
        """Number the blocks of a prompt; a block is known by the block before it and by the tokens in it."""
        ids: list[int] = []
        for content in blocks(chunks):
            parent = ids[-1] if ids else -1
            ids.append(self._blocks.setdefault((parent, content), len(self._blocks)))
        return tuple(ids)


def whole_seconds(place: Place, value: object) -> int:
    """Return the seconds of a timestamp, within a week."""
    seconds = integer_cell(place, "timestamp", nonempty_text(place, "timestamp", value))
    return whole_number(place, "timestamp", seconds, 0, WEEK_SECONDS)


def chunk_lengths(path: Path, name: str) -> dict[int, int]:
    """Return the tokens of each chunk by its id, from lines such as {"passage_id": 0, "token_length": 84}.

    Raises:
        UserError: The file is not there, or a line is not such a one.

    """
    if not path.is_file():
        raise UserError(f"{path}: no such file; RAGPulse keeps the lengths of its chunks there, beside the trace")
    lengths: dict[int, int] = {}
    for place, text in read_lines(path):
        members = json_object(place, text)
        known_fields(place, members, frozenset({name, "token_length"}))
        chunk = whole_number(place, name, required(place, members, name), 0, MAXIMUM_BLOCK_ID)
        if chunk in lengths:
            place.fail(f"{chunk} stands twice; each chunk has one length", name)
        lengths[chunk] = token_count(place, "token_length", required(place, members, "token_length"))
    return lengths


def chunks_of(place: Place, value: object, lengths: Mapping[str, Mapping[int, int]]) -> list[Chunk]:
    """Return the chunks of a prompt in order."""
    if not isinstance(value, dict):
        place.fail(f"expected a JSON object, found {shown(value)}", "hash_ids")
    known_fields(place, value, frozenset(PARTS))
    found: list[Chunk] = []
    for part, (file, _) in PARTS.items():
        listed = required(place, value, part)
        field = f"hash_ids.{part}"
        if not isinstance(listed, list):
            place.fail(f"expected a list of integers, found {shown(listed)}", field)
        for index, each in enumerate(listed):
            chunk = whole_number(place, f"{field}[{index}]", each, 0, MAXIMUM_BLOCK_ID)
            if chunk not in lengths[part]:
                place.fail(f"chunk {chunk} has no length in {file}", f"{field}[{index}]")
            found.append(((part, chunk), lengths[part][chunk]))
    return found


def whole_prompt(place: Place, chunks: list[Chunk], input_tokens: int) -> list[Chunk]:
    """Return the chunks and, behind them, the tokens that belong to none of them, which nobody shares."""
    known = sum(length for _, length in chunks)
    if known > input_tokens:
        place.fail(f"{input_tokens} is less than the {known} tokens of the chunks", "input_length")
    return chunks if known == input_tokens else [*chunks, (place.line, input_tokens - known)]


def blocks(chunks: Sequence[Chunk]) -> Iterator[tuple[tuple[object, int, int], ...]]:
    """Yield what is in each block of a prompt: pieces of chunks, each with its first token and their number."""
    pieces, room = list[tuple[object, int, int]](), BLOCK_LENGTH
    for name, length in chunks:
        first = 0
        while first < length:
            taken = min(room, length - first)
            pieces.append((name, first, taken))
            first, room = first + taken, room - taken
            if not room:
                yield tuple(pieces)
                pieces, room = [], BLOCK_LENGTH
    if pieces:
        yield tuple(pieces)
