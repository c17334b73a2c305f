"""Each format, read from the lines that its documentation shows, and what is said of lines that are wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvescrow.reference.traces import AUTO, SINGLE_TENANT, Trace, TraceFormat, TraceRequest, read_trace
from kvescrow.reference.traces import fields as fields_module
from kvescrow.spec.vocabulary import UserError

MOONCAKE = '{"timestamp": 27, "input_length": 1025, "output_length": 500, "hash_ids": [0, 1, 2]}'
AZURE_HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"
VIDUR_HEADER = "arrived_at,num_prefill_tokens,num_decode_tokens"
RESPONSE = (
    '{"adapter_dir": "lora-3", "prompt_len": 13, "output_len": 199, "request_latency": 9.4,'
    ' "first_token_latency": 1.2, "req_time": 0.0}'
)


RAGPULSE = (
    '{"timestamp": "82", "input_length": 150, "output_length": 7, "hash_ids": {"sys_prompt": [1, 2], "passages_ids":'
    ' [3], "history": [], "web_search": [], "user_input": [4]}, "session_id": "a"}'
)
LENGTHS = {
    "1_sys_prompt.jsonl": '{"sys_prompt_id": 1, "token_length": 100}\n{"sys_prompt_id": 2, "token_length": 20}\n',
    "2_passages.jsonl": '{"passage_id": 3, "token_length": 8}\n{"passage_id": 5, "token_length": 9}\n',
    "3_history.jsonl": "",
    "4_user_input.jsonl": '{"user_input_id": 4, "token_length": 15}\n',
    "5_web_search.jsonl": "",
}


def vtc(*responses: str) -> str:
    return '{"config": {}, "result": {"responses": [' + ", ".join(responses) + "]}}"


def read(tmp_path: Path, content: str | bytes, format: str = AUTO) -> Trace:
    path = tmp_path / "trace"
    for name, lines in LENGTHS.items():
        (tmp_path / name).write_text(lines, "utf-8")
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_trace(path, format)


def refusal(tmp_path: Path, content: str | bytes, format: str = AUTO) -> str:
    """The message for a file that is wrong, without the folder."""
    with pytest.raises(UserError) as caught:
        read(tmp_path, content, format)
    return str(caught.value).replace(f"{tmp_path}/", "")


# --- What is right ---


def test_mooncake(tmp_path: Path) -> None:
    second = '{"timestamp": 3027.5, "input_length": 512, "output_length": 1, "hash_ids": [9]}'
    trace = read(tmp_path, f"{MOONCAKE}\n{second}\n")
    assert trace.format is TraceFormat.MOONCAKE
    assert trace.requests == (
        TraceRequest("line-1", SINGLE_TENANT, 0, 1025, 500, (0, 1, 2), 512),
        TraceRequest("line-2", SINGLE_TENANT, 3_000_500, 512, 1, (9,), 512),
    )
    assert trace.remarks == ()


def test_mooncake_without_block_ids(tmp_path: Path) -> None:
    (request,) = read(tmp_path, '{"timestamp": 0, "input_length": 600, "output_length": 2}').requests
    assert (request.block_ids, request.block_length) == ((), 0)


def test_a_delay_is_counted_from_the_arrival_of_the_turn_before(tmp_path: Path) -> None:
    lines = (
        '{"timestamp": 5, "input_length": 3, "output_length": 2, "session_id": "a"}',
        '{"delay": 10, "input_length": 3, "output_length": 2, "session_id": "a"}',
        '{"delay": 20, "input_length": 3, "output_length": 2, "session_id": "a"}',
    )
    trace = read(tmp_path, "\n".join(lines))
    assert [request.arrival for request in trace.requests] == [0, 10_000, 30_000]
    assert [remark.split()[1] for remark in trace.remarks] == ["line", "delay"]


def test_azure_with_seven_digits_crlf_and_no_newline_at_the_end(tmp_path: Path) -> None:
    rows = ("2023-11-16 18:17:03.9799609,4808,10", "2023-11-16 18:17:04.0319600,3180,8")
    trace = read(tmp_path, "\r\n".join((AZURE_HEADER, *rows)))
    assert trace.format is TraceFormat.AZURE
    assert trace.requests == (
        TraceRequest("line-2", SINGLE_TENANT, 0, 4808, 10),
        TraceRequest("line-3", SINGLE_TENANT, 52_000, 3180, 8),
    )


def test_azure_of_2024_with_a_zone_and_without_a_fraction(tmp_path: Path) -> None:
    rows = ("2024-05-10 23:59:59.500000+00:00,1,1", "2024-05-11 00:00:00+00:00,1,1")
    trace = read(tmp_path, "\n".join((AZURE_HEADER, *rows)))
    assert [request.arrival for request in trace.requests] == [0, 500_000]


def test_vidur_in_another_order_of_columns(tmp_path: Path) -> None:
    trace = read(tmp_path, "num_decode_tokens,arrived_at,num_prefill_tokens\n140,0.0,591\n248,0.1250004,547\n")
    assert trace.format is TraceFormat.VIDUR
    assert trace.requests == (
        TraceRequest("line-2", SINGLE_TENANT, 0, 591, 140),
        TraceRequest("line-3", SINGLE_TENANT, 125_000, 547, 248),
    )


def test_vtc_keeps_a_request_that_the_recorded_run_refused(tmp_path: Path) -> None:
    refused = RESPONSE.replace("9.4", "-1").replace("1.2", "-1").replace("0.0", "2.5")
    trace = read(tmp_path, vtc(RESPONSE, refused) + "\n")
    assert trace.format is TraceFormat.VTC
    assert trace.requests == (
        TraceRequest("response-0", "lora-3", 0, 13, 199),
        TraceRequest("response-1", "lora-3", 2_500_000, 13, 199),
    )
    assert trace.remarks == ("The recorded run refused 1 of these requests; they are offered all the same.",)


def test_ragpulse_cuts_chunks_into_blocks_that_are_known_by_the_whole_prefix(tmp_path: Path) -> None:
    others = (
        RAGPULSE.replace("[3]", "[5]").replace("150", "152").replace('"82"', '"90"'),
        RAGPULSE.replace("[1, 2]", "[2, 1]").replace('"82"', '"91"'),
    )
    trace = read(tmp_path, "\n".join((RAGPULSE, *others)) + "\n\n")
    assert trace.format is TraceFormat.RAGPULSE
    assert trace.requests == (
        TraceRequest("line-1", SINGLE_TENANT, 0, 150, 7, (0, 1, 2), 64),
        # The passage is another one: the second block ends with its tokens.
        TraceRequest("line-2", SINGLE_TENANT, 8_000_000, 152, 7, (0, 3, 4), 64),
        TraceRequest("line-3", SINGLE_TENANT, 9_000_000, 150, 7, (5, 6, 7), 64),
    )
    assert [remark.split()[1] for remark in trace.remarks] == ["parts"]


def test_ragpulse_tokens_that_belong_to_no_chunk_are_shared_with_nobody(tmp_path: Path) -> None:
    first, second = read(tmp_path, f"{RAGPULSE}\n{RAGPULSE}\n").requests
    assert (first.block_ids, second.block_ids) == ((0, 1, 2), (0, 1, 3))
    whole = RAGPULSE.replace("150", "143")
    first, second = read(tmp_path, f"{whole}\n{whole}\n").requests
    assert first.block_ids == second.block_ids


def test_ragpulse_begins_a_new_week_where_the_clock_does(tmp_path: Path) -> None:
    times = ("604000", "603990", "0", "10")
    trace = read(tmp_path, "\n".join(RAGPULSE.replace("82", time) for time in times))
    assert [request.arrival // 1_000_000 for request in trace.requests] == [0, 10, 810, 820]
    assert trace.remarks[1:] == (
        "The clock steps back at line 3: what follows is a week later.",
        "1 requests stood after later ones; all were sorted by arrival.",
    )


def test_lines_out_of_order_are_sorted_and_said_to_be(tmp_path: Path) -> None:
    rows = ("2.0,1,1", "1.0,2,1", "2.0,3,1", "1.0,4,1")
    trace = read(tmp_path, "\n".join((VIDUR_HEADER, *rows)))
    assert [(request.arrival, request.input_tokens) for request in trace.requests] == [
        (0, 2),
        (0, 4),
        (1_000_000, 1),
        (1_000_000, 3),
    ]
    assert trace.remarks == ("2 requests stood after later ones; all were sorted by arrival.",)


def test_blank_lines_and_a_byte_order_mark_mean_nothing(tmp_path: Path) -> None:
    assert len(read(tmp_path, f"\ufeff{MOONCAKE}\n\n  \n{MOONCAKE}\n\n").requests) == 2


# --- What is wrong ---


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"timestamp": 0, "input_len', "trace:2: not valid JSON"),
        ("[1]", "trace:2: expected a JSON object, found [1]"),
        (MOONCAKE.replace("27", "NaN"), "trace:2: NaN is not a JSON value"),
        (MOONCAKE.replace("27", '"27"'), "trace:2: timestamp: expected a number, found '27'"),
        (MOONCAKE.replace("27", "-1"), "trace:2: timestamp: '-1' is outside 0 to"),
        (MOONCAKE.replace("27", "1e400"), "trace:2: timestamp: '1E+400' is outside 0 to"),
        (MOONCAKE.replace("27", "true"), "trace:2: timestamp: expected a number, found True"),
        (MOONCAKE.replace("1025", "1025.0"), "trace:2: input_length: expected an integer, found 1025.0"),
        (MOONCAKE.replace("1025", "true"), "trace:2: input_length: expected an integer, found True"),
        (MOONCAKE.replace("1025", "-5"), "trace:2: input_length: -5 is outside 1 to 2147483647"),
        (MOONCAKE.replace("1025", "9" * 5000), "trace:2: not valid JSON"),
        (MOONCAKE.replace("500", "0"), "trace:2: output_length: 0 is outside 1 to 2147483647"),
        (MOONCAKE.replace("500", "null"), "trace:2: output_length: expected an integer, found None"),
        (MOONCAKE.replace('"output_length": 500, ', ""), "trace:2: output_length: missing"),
        (MOONCAKE.replace('"timestamp": 27, ', ""), "trace:2: timestamp: missing"),
        (MOONCAKE.replace("[0, 1, 2]", "[0, 1]"), "trace:2: hash_ids: 2 ids for 1025 tokens, expected 3"),
        (MOONCAKE.replace("[0, 1, 2]", "{}"), "trace:2: hash_ids: expected a list of integers, found {}"),
        (MOONCAKE.replace("[0, 1, 2]", "[0, 1.5, 2]"), "trace:2: hash_ids[1]: expected an integer"),
        (MOONCAKE.replace("hash_ids", "hash_idz"), "trace:2: 'hash_idz': unknown field; known are delay"),
        (MOONCAKE.replace("output_length", "input_length"), "trace:2: named twice: 'input_length'"),
        (MOONCAKE.replace("{", '{"delay": 3, '), "trace:2: delay: stands beside a timestamp"),
        (MOONCAKE.replace("timestamp", "delay"), "trace:2: session_id: missing"),
        (
            MOONCAKE.replace("timestamp", "delay").replace("{", '{"session_id": "s", '),
            "trace:2: delay: 's' has no earlier turn; its first turn needs a timestamp",
        ),
        ("[" * 100_000, "trace:2: not valid JSON"),
    ],
)
def test_mooncake_refusals_name_line_and_field(tmp_path: Path, line: str, message: str) -> None:
    assert refusal(tmp_path, f"{MOONCAKE}\n{line}\n").startswith(message)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (f"{AZURE_HEADER},Model\n", "trace:1: unknown column 'Model'; expected TIMESTAMP,"),
        ("TIMESTAMP,ContextTokens\n", "trace:1: no column 'GeneratedTokens'; expected TIMESTAMP,"),
        (f"{AZURE_HEADER},TIMESTAMP\n", "trace:1: column 'TIMESTAMP' stands twice"),
        (f"{AZURE_HEADER}\n2023-11-16 18:17:03.9,4808\n", "trace:2: 2 cells, the header has 3"),
        (f"{AZURE_HEADER}\nyesterday,1,1\n", "trace:2: TIMESTAMP: expected a time such as 2023-11-16"),
        (
            f"{AZURE_HEADER}\n2023-02-30 00:00:00,1,1\n",
            "trace:2: TIMESTAMP: '2023-02-30 00:00:00' is",
        ),
        (f"{AZURE_HEADER}\n2023-11-16 18:17:03,1.5,1\n", "trace:2: ContextTokens: expected a whole number"),
        (f"{AZURE_HEADER}\n2023-11-16 18:17:03,1,0\n", "trace:2: GeneratedTokens: 0 is outside 1 to"),
        (f"{AZURE_HEADER}\n", "trace: holds no request; give a trace with at least one"),
        (f"{VIDUR_HEADER}\nnan,1,1\n", "trace:2: arrived_at: expected a number, found 'nan'"),
        (f"{VIDUR_HEADER}\n1e,1,1\n", "trace:2: arrived_at: expected a number, found '1e'"),
        (f"{VIDUR_HEADER}\n-0.5,1,1\n", "trace:2: arrived_at: '-0.5' is outside 0 to"),
        (f"{VIDUR_HEADER}\n0.5,-1,1\n", "trace:2: num_prefill_tokens: expected a whole number"),
        (f"{VIDUR_HEADER}\n0.5,1,²\n", "trace:2: num_decode_tokens: expected a whole number"),
        ("", "trace: empty; give a trace with at least one request"),
        ("\n\n", "trace: empty; give a trace with at least one request"),
        ("a,b,c\n1,2,3\n", "trace:1: no known format begins with 'a,b,c'; a trace is JSON Lines with"),
        (b"\x1f\x8b\x08\xff\xfe", "trace:1: not UTF-8 text; a compressed or binary file must be unpacked"),
    ],
)
def test_table_refusals_name_line_and_column(tmp_path: Path, content: str | bytes, message: str) -> None:
    assert refusal(tmp_path, content).startswith(message)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (vtc(RESPONSE, "7"), "trace:1: result.responses[1]: expected a JSON object, found 7"),
        (vtc(RESPONSE.replace("13", "0")), "trace:1: result.responses[0].prompt_len: 0 is outside 1 to"),
        (vtc(RESPONSE.replace('"lora-3"', '""')), "trace:1: result.responses[0].adapter_dir: expected text"),
        (vtc(RESPONSE.replace("9.4", "-2")), "trace:1: result.responses[0].request_latency: '-2' is outside"),
        (vtc(RESPONSE.replace("req_time", "time")), "trace:1: result.responses[0].'time': unknown field"),
        (vtc(), "trace: holds no request; give a trace with at least one"),
        (f"{vtc(RESPONSE)}\n{vtc(RESPONSE)}\n", "trace:2: a second line; a results file is one JSON object"),
        ('{"result": 3}', "trace:1: result: expected a JSON object, found 3"),
        ('{"result": {}}', "trace:1: result.responses: missing"),
        ('{"result": {"responses": 3}}', "trace:1: result.responses: expected a list, found 3"),
    ],
)
def test_vtc_refusals_name_the_response(tmp_path: Path, content: str, message: str) -> None:
    assert refusal(tmp_path, content).startswith(message)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (RAGPULSE.replace('"82"', "82"), "trace:2: timestamp: expected text, found 82"),
        (RAGPULSE.replace('"82"', '"8.2"'), "trace:2: timestamp: expected a whole number without sign"),
        (RAGPULSE.replace('"82"', '"604801"'), "trace:2: timestamp: 604801 is outside 0 to 604800"),
        (RAGPULSE.replace("150", "142"), "trace:2: input_length: 142 is less than the 143 tokens of the chunks"),
        (RAGPULSE.replace("7,", "0,"), "trace:2: output_length: 0 is outside 1 to"),
        (RAGPULSE.replace("[1, 2]", "3"), "trace:2: hash_ids.sys_prompt: expected a list of integers, found 3"),
        (RAGPULSE.replace("[1, 2]", '[1, "2"]'), "trace:2: hash_ids.sys_prompt[1]: expected an integer, found '2'"),
        (
            RAGPULSE.replace("[1, 2]", "[1, 3]"),
            "trace:2: hash_ids.sys_prompt[1]: chunk 3 has no length in 1_sys_prompt.jsonl",
        ),
        (RAGPULSE.replace('"history": [], ', ""), "trace:2: history: missing"),
        (RAGPULSE.replace("history", "memory"), "trace:2: 'memory': unknown field; known are history"),
        (MOONCAKE.replace("27", '"27"'), "trace:2: hash_ids: expected a JSON object, found [0, 1, 2]"),
    ],
)
def test_ragpulse_refusals_name_line_and_field(tmp_path: Path, line: str, message: str) -> None:
    assert refusal(tmp_path, f"{RAGPULSE}\n{line}\n").startswith(message)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('{"passage_id": 3}', "2_passages.jsonl:1: token_length: missing"),
        ('{"passage_id": 3, "token_length": 0}', "2_passages.jsonl:1: token_length: 0 is outside 1 to"),
        ('{"history_id": 3, "token_length": 1}', "2_passages.jsonl:1: 'history_id': unknown field"),
        ('{"passage_id": 3, "token_length": 1}\n' * 2, "2_passages.jsonl:2: passage_id: 3 stands twice"),
        (None, "2_passages.jsonl: no such file; RAGPulse keeps the lengths of its chunks there, beside the trace"),
    ],
)
def test_ragpulse_lengths_are_refused_by_file_and_line(tmp_path: Path, lines: str | None, message: str) -> None:
    assert len(read(tmp_path, RAGPULSE).requests) == 1
    file = tmp_path / "2_passages.jsonl"
    file.unlink() if lines is None else file.write_text(lines, "utf-8")
    with pytest.raises(UserError) as caught:
        read_trace(tmp_path / "trace")
    assert str(caught.value).startswith(f"{tmp_path}/{message}")


def test_a_named_format_is_not_guessed(tmp_path: Path) -> None:
    assert refusal(tmp_path, MOONCAKE, "azure").startswith("trace:1: unknown column '{\"timestamp\": 27'")
    assert refusal(tmp_path, MOONCAKE, "csv") == (
        "unknown trace format 'csv'; choose from auto, mooncake, azure, vidur, vtc, ragpulse"
    )


def test_what_is_no_readable_file(tmp_path: Path) -> None:
    for path, message in (
        (tmp_path / "none", f"{tmp_path}/none: no such file; give the path of a trace"),
        (tmp_path, f"{tmp_path}: a directory; give one file in it"),
    ):
        with pytest.raises(UserError) as caught:
            read_trace(path)
        assert str(caught.value) == message
    with pytest.raises(UserError, match="cannot be read"):
        read_trace("nul\0byte")


def test_a_huge_line_is_refused_before_it_is_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fields_module, "MAXIMUM_LINE_BYTES", 200)
    assert len(read(tmp_path, f"{MOONCAKE}\n" * 3).requests) == 3
    assert refusal(tmp_path, f"{MOONCAKE}\n" + " " * 300) == ("trace:2: longer than 200 bytes; is this a trace?")


# --- Any bytes at all ---

WHOLE = {
    "mooncake": f"{MOONCAKE}\n{MOONCAKE}\n",
    "azure": f"{AZURE_HEADER}\n2023-11-16 18:17:03.9799600,4808,10\n",
    "vidur": f"{VIDUR_HEADER}\n0.125,547,248\n",
    "vtc": vtc(RESPONSE, RESPONSE),
    "ragpulse": f"{RAGPULSE}\n{RAGPULSE}\n",
}
PIECES = st.sampled_from(
    (
        *(b"0", b"-1", b"1e9999999999999999999", b"1e-9999999", b"9" * 30, b"NaN", b"null", b"true", b"."),
        *(b"[]", b"{}", b",", b'"', b"\n", b"\x00", b"\xff", "\ufeff".encode(), "\u0661".encode()),
    )
)


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, bytes]:
    """A right file with some slices replaced."""
    format = draw(st.sampled_from(sorted(WHOLE)))
    content = WHOLE[format].encode()
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(content)))
        stop = draw(st.integers(start, min(start + 12, len(content))))
        content = content[:start] + draw(PIECES | st.binary(max_size=4)) + content[stop:]
    return draw(st.sampled_from([AUTO, format])), content


@given(st.tuples(st.sampled_from([AUTO, *WHOLE]), st.binary(max_size=200)) | damaged())
@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_read_whole_or_refused(tmp_path: Path, case: tuple[str, bytes]) -> None:
    format, content = case
    try:
        trace = read(tmp_path, content, format)
    except UserError as error:
        assert str(error).startswith(str(tmp_path))
    else:
        arrivals = [request.arrival for request in trace.requests]
        assert arrivals == sorted(arrivals)
        assert arrivals[0] == 0
        assert len({request.request for request in trace.requests}) == len(arrivals)


def test_whole_files_are_read(tmp_path: Path) -> None:
    for format, content in WHOLE.items():
        assert read(tmp_path, content).format is TraceFormat(format)
