"""Where an engine is reached."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from pdd.common.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Target:
    """An HTTP server at host:port. `tunnel`: a CONNECT name; host:port is then the gateway that leads to it."""

    host: str
    port: int
    tunnel: str = ""

    @property
    def authority(self) -> str:
        return self.tunnel or f"{self.host}:{self.port}"


def parse_url(field: str, url: str) -> Target:
    """`http://host:port` as a Target. Raises InvalidInput naming `field`."""
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError as error:
        raise InvalidInput(field, url, "the port must be a number from 1 to 65535") from error
    if parts.scheme != "http" or not parts.hostname or parts.path not in ("", "/") or parts.query:
        raise InvalidInput(field, url, "must be a base URL such as http://127.0.0.1:8100")
    return Target(parts.hostname, port or 80)


def parse_host_port(field: str, value: str) -> tuple[str, int]:
    """`host:port`. Raises InvalidInput naming `field`."""
    host, _, port = value.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise InvalidInput(field, value, "must be host:port")
    return host, int(port)
