"""Short bounded HTTP reads of local processes, for readiness and counters."""

from __future__ import annotations

from typing import Any

import httpx

from pdd.cli.runner.supervisor import Probe
from pdd.common.errors import Unreachable

_TIMEOUT = httpx.Timeout(2.0)


async def get_json(url: str) -> Any:
    """The JSON document at `url`. Raises Unreachable on no answer, another status than 200, or no JSON."""
    try:
        async with httpx.AsyncClient(timeout=_TIMEOUT, trust_env=False) as client:
            answer = await client.get(url)
            answer.raise_for_status()
            return answer.json()
    except (httpx.HTTPError, ValueError) as error:
        raise Unreachable(f"{url}: {error or type(error).__name__}") from error


def answers(url: str) -> Probe:
    """Ready when `url` answers 200."""

    async def probe() -> bool:
        try:
            async with httpx.AsyncClient(timeout=_TIMEOUT, trust_env=False) as client:
                return (await client.get(url)).status_code == 200
        except httpx.HTTPError:
            return False

    return probe
