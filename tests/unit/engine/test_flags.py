"""The engine's command line."""

from __future__ import annotations

import pytest

from pdd.common.errors import InvalidInput
from pdd.engine.reference import model_info
from pdd.engine.reference.flags import parse_settings


def test_defaults_stand_alone() -> None:
    settings = parse_settings([], {})
    assert (settings.role, settings.host, settings.port, settings.kv_port) == ("prefill", "127.0.0.1", 8000, 8001)
    assert settings.advertise_host == "127.0.0.1"


def test_flags_win_over_the_environment() -> None:
    environ = {"PDD_ENGINE_KV_PORT": "9001", "PDD_ENGINE_NUM_BLOCKS": "77"}
    settings = parse_settings(["--kv-port", "9002"], environ)
    assert (settings.kv_port, settings.num_blocks) == (9002, 77)


def test_names_are_a_list() -> None:
    assert parse_settings(["--served-model-name", "a, b"], {}).served_model_names == ("a", "b")


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--role", "boss"), ("--port", "x"), ("--port", "70000"), ("--block-size", "0"), ("--num-blocks", "-1"),
        ("--max-model-len", "1"), ("--max-model-len", "99999999"), ("--chunk-tokens", "0"), ("--step-ms", "-1"),
        ("--step-ms", "nan"), ("--kv-proxy", "socks://x:1"), ("--kv-proxy", "http://x"),
        ("--kv-proxy", "http://x:99999"), ("--kv-lease-s", "0"), ("--served-model-name", ","),
        ("--kv-load-failure-policy", "maybe"), ("--grace-s", "soon"),
    ],
)  # fmt: skip
def test_bad_values_name_flag_value_and_remedy(flag: str, value: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_settings([flag, value], {})
    assert (caught.value.field, caught.value.value) == (flag, value)
    assert "must" in caught.value.remedy


def test_listening_everywhere_needs_an_address_to_advertise() -> None:
    with pytest.raises(InvalidInput, match="--advertise-host"):
        parse_settings(["--host", "0.0.0.0"], {})
    assert parse_settings(["--host", "0.0.0.0", "--advertise-host", "10.0.0.7"], {}).advertise_host == "10.0.0.7"


def test_a_proxy_is_host_and_port() -> None:
    assert parse_settings(["--kv-proxy", "http://127.0.0.1:81"], {}).kv_proxy == ("127.0.0.1", 81)
    assert parse_settings([], {}).kv_proxy is None


def test_unknown_flags_are_refused() -> None:
    with pytest.raises(InvalidInput, match="--bogus"):
        parse_settings(["--bogus", "1"], {})


def test_model_info_is_what_planners_count_with() -> None:
    info = model_info()
    assert info == {
        "bytes_per_token": 4096,
        "block_size": 16,
        "vocab_size": 272,
        "eos_token_id": 256,
        "max_context": 32768,
    }
