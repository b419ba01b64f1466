"""The clamping connector, on stand-ins for the two vLLM classes that it extends."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from pdd.api.engines import connector_source


class StockScheduler:
    """vLLM's answer: the whole rest of the prompt is remote."""

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        return request.num_prompt_tokens - num_computed_tokens, True


class StockConnector:
    def __init__(self, role: str) -> None:
        self.connector_scheduler = StockScheduler() if role == "scheduler" else None


@pytest.fixture
def connector(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    base = "vllm.distributed.kv_transfer.kv_connector.v1.nixl"
    nixl, pull = types.ModuleType(base), types.ModuleType(f"{base}.pull_scheduler")
    nixl.NixlPullConnector = StockConnector  # type: ignore[attr-defined]
    pull.NixlPullConnectorScheduler = StockScheduler  # type: ignore[attr-defined]
    parts = base.split(".")
    for end in range(1, len(parts)):
        monkeypatch.setitem(sys.modules, ".".join(parts[:end]), types.ModuleType(".".join(parts[:end])))
    monkeypatch.setitem(sys.modules, base, nixl)
    monkeypatch.setitem(sys.modules, f"{base}.pull_scheduler", pull)
    names: dict[str, Any] = {}
    exec(compile(connector_source(), "pdd_connector.py", "exec"), names)
    return names


def request(prompt: int, **params: Any) -> Any:
    return types.SimpleNamespace(num_prompt_tokens=prompt, kv_transfer_params=params or None)


@pytest.mark.parametrize(
    ("prompt", "remote", "computed", "expected"),
    [
        (108, 100, 0, (100, True)),  # prompt + 8 eager tokens: load the prompt, extend the rest
        (108, 100, 96, (4, True)),  # local prefix hit: only what is missing
        (108, 100, 112, (0, False)),  # local hit beyond the handle: nothing to load
        (100, 100, 0, (100, True)),
        (80, 100, 0, (80, True)),  # never beyond the prompt
    ],
)
def test_only_what_the_owner_has_is_loaded(
    connector: dict[str, Any], prompt: int, remote: int, computed: int, expected: tuple[int, bool]
) -> None:
    made = connector["PddNixlConnector"]("scheduler")
    asked = request(prompt, do_remote_prefill=True, remote_num_tokens=remote)
    assert made.connector_scheduler.get_num_new_matched_tokens(asked, computed) == expected


def test_a_request_without_a_handle_goes_the_stock_way(connector: dict[str, Any]) -> None:
    scheduler = connector["PddNixlConnector"]("scheduler").connector_scheduler
    assert scheduler.get_num_new_matched_tokens(request(50), 20) == (30, True)
    assert scheduler.get_num_new_matched_tokens(request(50, do_remote_decode=True, remote_num_tokens=9), 20) == (
        30,
        True,
    )


def test_a_worker_has_no_scheduler_to_change(connector: dict[str, Any]) -> None:
    assert connector["PddNixlConnector"]("worker").connector_scheduler is None
