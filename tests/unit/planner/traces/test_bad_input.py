"""Broken traces, kind by kind and format by format: each is refused with file, line and field."""

from __future__ import annotations

import bz2
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from pdd.common.errors import InvalidInput
from pdd.planner.traces import read_trace

DATA = Path(__file__).parents[4] / "tests" / "data" / "traces"
NAMES = ("mooncake.jsonl", "agentic.csv", "azure_2023.csv", "azure_2024.csv", "azure_multimodal.csv")
AGENTIC_HEADER = (
    "session,agent_depth,t_s,input_tokens,output_tokens,hit_tokens_intra_session,first_req_tool_plus_system_tokens,"
    "api_time_s,ttft_s,think_time_s"
)


def refusal(path: Path) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        read_trace(path)
    return caught.value


def refused(tmp_path: Path, content: bytes, line: int, field: str, remedy: str = "") -> None:
    """The refusal names the file, that line and that field."""
    path = tmp_path / "trace.txt"
    path.write_bytes(content)
    error = refusal(path)
    assert error.field == f"{path}:{line}: {field}", error
    assert remedy in error.remedy, error


def mooncake(*rows: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


GOOD = {"timestamp": 5, "input_length": 600, "output_length": 3, "hash_ids": [1, 2]}


def test_a_file_that_is_not_there_and_a_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "none.csv", tmp_path):
        error = refusal(path)
        assert error.field == f"{path}: file" and "cannot be read" in error.remedy


@pytest.mark.parametrize("content", [b"", b"\n", b"  \n", b"\n\n"])
def test_an_empty_file(tmp_path: Path, content: bytes) -> None:
    refused(tmp_path, content, 1, "line" if content else "file", "")


@pytest.mark.parametrize("name", NAMES[1:])
def test_a_header_alone(tmp_path: Path, name: str) -> None:
    refused(tmp_path, (DATA / name).read_bytes().split(b"\n")[0] + b"\n", 2, "file", "no request")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mark", [b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff"])
def test_a_byte_order_mark(tmp_path: Path, name: str, mark: bytes) -> None:
    refused(tmp_path, mark + (DATA / name).read_bytes(), 1, "byte order mark", "UTF-8 without")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress])
def test_a_packed_file(tmp_path: Path, name: str, pack: Any) -> None:
    refused(tmp_path, pack((DATA / name).read_bytes()), 1, "file", "unpack it first")


def test_json_lines_with_crlf(tmp_path: Path) -> None:
    text = (DATA / "mooncake.jsonl").read_bytes()
    refused(tmp_path, text.replace(b"\n", b"\r\n"), 1, "line end", "dos2unix")
    lines = text.splitlines(keepends=True)
    lines[2] = lines[2].replace(b"\n", b"\r\n")
    refused(tmp_path, b"".join(lines), 3, "line end", "dos2unix")


@pytest.mark.parametrize("name", NAMES[1:])
def test_csv_lines_that_do_not_end_alike(tmp_path: Path, name: str) -> None:
    lines = (DATA / name).read_bytes().replace(b"\r\n", b"\n").splitlines()
    refused(tmp_path, lines[0] + b"\r\n" + b"\n".join(lines[1:]) + b"\n", 2, "line end", "alike")
    refused(tmp_path, b"\n".join([lines[0], lines[1] + b"\r", *lines[2:]]) + b"\n", 2, "line end", "alike")
    refused(tmp_path, b"\r".join(lines), 1, "line end", "alike")


@pytest.mark.parametrize("name", NAMES)
def test_a_blank_line_bad_utf8_and_a_nul(tmp_path: Path, name: str) -> None:
    lines = (DATA / name).read_bytes().replace(b"\r\n", b"\n").splitlines()
    refused(tmp_path, b"\n".join([*lines[:2], b"", *lines[2:]]), 3, "line", "blank")
    refused(tmp_path, b"\n".join(lines) + b"\n\n", len(lines) + 1, "line", "blank")
    refused(tmp_path, b"\n".join([*lines[:2], b"\xff\xfe\xfa"]), 3, "line", "no UTF-8")
    refused(tmp_path, b"\n".join([*lines[:2], b"a\0b"]), 3, "line", "NUL")


@pytest.mark.parametrize("content", [b"hello\n", b"1,2,3\n", b"<html>\n", b"time;tokens\n", b"%PDF-1.7\n"])
def test_something_else(tmp_path: Path, content: bytes) -> None:
    refused(tmp_path, content, 1, "header", "is no trace")


@pytest.mark.parametrize("broken", [b"{", b'{"timestamp": 5', b"{]}", b'{"timestamp": 5,}', b"not json", b'{"a": 1} x'])
def test_broken_json(tmp_path: Path, broken: bytes) -> None:
    refused(tmp_path, mooncake(GOOD) + broken + b"\n", 2, "JSON", "broken")


@pytest.mark.parametrize("row", [b"[1, 2]", b"7", b'"text"', b"null", b"true"])
def test_json_that_is_no_object(tmp_path: Path, row: bytes) -> None:
    refused(tmp_path, mooncake(GOOD) + row + b"\n", 2, "JSON", "must be an object")


def test_json_of_great_depth(tmp_path: Path) -> None:
    refused(tmp_path, mooncake(GOOD) + b'{"timestamp": ' + b"[" * 100_000 + b"\n", 2, "JSON", "broken")


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity"])
@pytest.mark.parametrize("key", [b"timestamp", b"input_length", b"output_length", b"hash_ids"])
def test_json_numbers_that_are_none(tmp_path: Path, number: bytes, key: bytes) -> None:
    row = {**GOOD, key.decode(): "@"}
    line = mooncake(row).replace(b'"@"', number)
    refused(tmp_path, mooncake(GOOD) + line, 2, "JSON", "no number")


@pytest.mark.parametrize("key", list(GOOD))
def test_a_missing_and_a_renamed_json_field(tmp_path: Path, key: str) -> None:
    without = {name: value for name, value in GOOD.items() if name != key}
    refused(tmp_path, mooncake(GOOD, without), 2, key, "is missing")
    refused(tmp_path, mooncake(GOOD, {**without, key + "s": GOOD[key]}), 2, key, f"rename '{key}s'")


@pytest.mark.parametrize("value", ["600", None, True, 1.5, [1], {}, -1, 10**12, 10**30])
@pytest.mark.parametrize("key", ["input_length", "output_length"])
def test_json_lengths_of_the_wrong_kind(tmp_path: Path, key: str, value: object) -> None:
    refused(tmp_path, mooncake(GOOD, {**GOOD, key: value}), 2, key, "must be")


def test_an_empty_prompt(tmp_path: Path) -> None:
    refused(tmp_path, mooncake({**GOOD, "input_length": 0, "hash_ids": []}), 1, "input_length", "at least 1")


@pytest.mark.parametrize("value", [None, True, [1], {}, -1, -0.001, 1e300, "soon", "5"])
def test_json_times_of_the_wrong_kind(tmp_path: Path, value: object) -> None:
    refused(tmp_path, mooncake({**GOOD, "timestamp": value}), 1, "timestamp", "must be")


@pytest.mark.parametrize("value", [None, "1 2", 3, {}, [1, "2"], [1, 2.0], [1, -2], [True], [None], [[1]]])
def test_hash_ids_of_the_wrong_kind(tmp_path: Path, value: object) -> None:
    refused(tmp_path, mooncake(GOOD, {**GOOD, "hash_ids": value}), 2, "hash_ids", "whole numbers")


def test_more_blocks_than_the_prompt_has(tmp_path: Path) -> None:
    refused(tmp_path, mooncake({**GOOD, "hash_ids": [1, 2, 3]}), 1, "hash_ids", "at most 2 blocks of 512")


def test_mooncake_times_that_fall(tmp_path: Path) -> None:
    refused(
        tmp_path, mooncake(GOOD, {**GOOD, "timestamp": 9}, {**GOOD, "timestamp": 8}), 3, "timestamp", "sort by time"
    )


def csv_of(name: str) -> list[bytes]:
    return (DATA / name).read_bytes().replace(b"\r\n", b"\n").splitlines()


AZURE_CELLS = [
    ("TIMESTAMP", ["", "yesterday", "2023-11-16", "2023-13-16 00:00:00", "1700158623", "NaN", "2023-11-16 25:00:00"]),
    ("ContextTokens", ["", "NaN", "nan", "inf", "-3", "0", "4.5", "1e3", "0x10", "4 808", "١٢", "9" * 19, "1" * 12]),
    ("GeneratedTokens", ["", "NaN", "inf", "-3", "4.5", "1e3", "ten", "true", "9" * 19]),
]


@pytest.mark.parametrize(("column", "value"), [(column, value) for column, values in AZURE_CELLS for value in values])
@pytest.mark.parametrize("name", ["azure_2023.csv", "azure_multimodal.csv"])
def test_azure_cells(tmp_path: Path, name: str, column: str, value: str) -> None:
    lines = csv_of(name)
    cells = lines[2].decode().split(",")
    cells[lines[0].decode().split(",").index(column)] = value
    refused(tmp_path, b"\n".join([*lines[:2], ",".join(cells).encode()]) + b"\n", 3, column, "must")


AGENTIC_CELLS = [
    ("session", [""]),
    ("agent_depth", ["", "-1", "x", "0.5", "1000"]),
    ("t_s", ["", "NaN", "inf", "-1", "later", "1e300"]),
    ("input_tokens", ["", "NaN", "-5", "0", "1.5", "many", "9" * 19]),
    ("output_tokens", ["", "NaN", "-5", "1.5"]),
    ("hit_tokens_intra_session", ["", "NaN", "-64", "1.5", "20001"]),
    ("api_time_s", ["NaN", "-1", "x"]),
    ("think_time_s", ["NaN", "-1", "x"]),
]


@pytest.mark.parametrize(("column", "value"), [(column, value) for column, values in AGENTIC_CELLS for value in values])
def test_agentic_cells(tmp_path: Path, column: str, value: str) -> None:
    lines = csv_of("agentic.csv")
    cells = lines[2].decode().split(",")
    cells[AGENTIC_HEADER.split(",").index(column)] = value
    refused(tmp_path, b"\n".join([*lines[:2], ",".join(cells).encode(), *lines[3:]]) + b"\n", 3, column)


@pytest.mark.parametrize(
    ("name", "column"),
    [
        (name, column)
        for name, columns in (
            ("azure_2023.csv", ("TIMESTAMP", "ContextTokens", "GeneratedTokens")),
            ("azure_multimodal.csv", ("TIMESTAMP", "ContextTokens", "GeneratedTokens")),
            ("agentic.csv", ("session", "agent_depth", "t_s", "input_tokens", "output_tokens", "think_time_s")),
        )
        for column in columns
    ],
)
def test_a_missing_a_renamed_and_a_repeated_column(tmp_path: Path, name: str, column: str) -> None:
    lines = csv_of(name)
    header = lines[0].decode().split(",")
    at = header.index(column)

    def with_header(names: list[str]) -> bytes:
        return b"\n".join([",".join(names).encode(), *lines[1:]]) + b"\n"

    other = "zz_" + column[::-1]
    refused(tmp_path, with_header([*header[:at], other, *header[at + 1 :]]), 1, column, "is missing")
    renamed = column + "_"
    refused(tmp_path, with_header([*header[:at], renamed, *header[at + 1 :]]), 1, column, f"rename '{renamed}'")
    refused(tmp_path, with_header([*header[:at], column.swapcase(), *header[at + 1 :]]), 1, column, "rename")
    refused(tmp_path, with_header([*header, column]), 1, column, "twice")


@pytest.mark.parametrize("name", NAMES[1:])
def test_rows_with_more_or_fewer_cells_than_the_header(tmp_path: Path, name: str) -> None:
    lines = csv_of(name)
    refused(tmp_path, b"\n".join([*lines[:2], lines[2] + b",1"]) + b"\n", 3, "row", "cells")
    refused(tmp_path, b"\n".join([*lines[:2], lines[2].rsplit(b",", 1)[0]]) + b"\n", 3, "row", "cells")
    refused(tmp_path, b"\n".join([*lines[:2], lines[2].replace(b",", b";")]) + b"\n", 3, "row", "cells")


def test_quotes_that_do_not_end(tmp_path: Path) -> None:
    lines = csv_of("azure_2023.csv")
    refused(tmp_path, b"\n".join([*lines[:2], b'"2023-11-16 18:17:09,5,5']) + b"\n", 3, "row", "no CSV")


@pytest.mark.parametrize("name", ["azure_2023.csv", "azure_2024.csv", "azure_multimodal.csv"])
def test_azure_times_that_fall(tmp_path: Path, name: str) -> None:
    lines = csv_of(name)
    refused(tmp_path, b"\n".join([lines[0], lines[2], lines[1]]) + b"\n", 3, "TIMESTAMP", "sort by time")


def test_azure_times_with_and_without_a_zone(tmp_path: Path) -> None:
    lines = [*csv_of("azure_2023.csv"), b"2023-11-16 19:17:04+00:00,5,5"]
    refused(tmp_path, b"\n".join(lines) + b"\n", len(lines), "TIMESTAMP", "zone")


def test_agentic_order(tmp_path: Path) -> None:
    lines = csv_of("agentic.csv")
    swapped = [*lines[:-2], lines[-1], lines[-2]]
    refused(tmp_path, b"\n".join(swapped) + b"\n", len(lines), "t_s", "sort by session")
    again = [*lines, lines[1].replace(b"1,0,0.0", b"1,0,99.0")]
    refused(tmp_path, b"\n".join(again) + b"\n", len(again), "session", "continues after another")


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one(limit: int) -> None:
    with pytest.raises(InvalidInput, match="limit"):
        read_trace(DATA / "azure_2023.csv", limit)
