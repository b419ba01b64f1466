"""Socket options, the original destination of a redirected connection, and waits with a bound."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct

from pdd.common.errors import InvalidInput, TimedOut, Unreachable
from pdd.link.sizing import StreamSizes

_log = logging.getLogger("pdd.link.sockets")

_TCP_NOTSENT_LOWAT = 25
_TCP_USER_TIMEOUT = 18
_SO_MAX_PACING_RATE = 47
_SO_ORIGINAL_DST = 80
_warned: set[str] = set()


def tune_local(sock: socket.socket) -> None:
    """A connection to or from a process of this machine or pod network."""
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def tune_fast(sock: socket.socket, dscp: int, dead_after_s: int) -> None:
    """The fast lane: nothing may wait for company, and little may wait in the kernel."""
    _tune_line(sock, dead_after_s)
    _try(sock, socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, 32 * 1024, "TCP_NOTSENT_LOWAT")
    if dscp:
        if sock.family == socket.AF_INET6:
            _try(sock, socket.IPPROTO_IPV6, socket.IPV6_TCLASS, dscp << 2, "IPV6_TCLASS")
        else:
            _try(sock, socket.IPPROTO_IP, socket.IP_TOS, dscp << 2, "IP_TOS")
    _try(sock, socket.SOL_SOCKET, socket.SO_PRIORITY, 6, "SO_PRIORITY")


def tune_bulk(sock: socket.socket, sizes: StreamSizes, congestion_control: str, dead_after_s: int) -> None:
    """A bulk stream: little unsent in the kernel, the chosen congestion control, smoothed by the kernel's pacing."""
    _tune_line(sock, dead_after_s)
    _try(sock, socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, sizes.notsent_lowat, "TCP_NOTSENT_LOWAT")
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion_control.encode())
    except OSError as error:
        in_use = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()
        _warn_once(
            congestion_control,
            f"congestion control {congestion_control!r} cannot be set ({error.strerror}); streams use {in_use!r}. "
            "Load the kernel module, or add it to net.ipv4.tcp_allowed_congestion_control",
        )
    pace(sock, sizes)


def pace(sock: socket.socket, sizes: StreamSizes) -> None:
    """Let the kernel smooth what a bulk stream sends; may be changed while it sends."""
    if sizes.pacing_bytes_per_s:
        try:
            sock.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, struct.pack("=Q", sizes.pacing_bytes_per_s))
        except OSError as error:
            _warn_once("pacing", f"SO_MAX_PACING_RATE cannot be set ({error.strerror}); bursts are not smoothed")


def original_destination(sock: socket.socket) -> tuple[str, int] | None:
    """Where a connection that iptables REDIRECT sent here was going (IPv4); None if it was not redirected."""
    try:
        raw = sock.getsockopt(socket.SOL_IP, _SO_ORIGINAL_DST, 16)
    except OSError:
        return None
    port, address = struct.unpack("!2xH4s8x", raw)
    found = (socket.inet_ntoa(address), int(port))
    return None if found == sock.getsockname()[:2] else found


def listen(host: str, port: int, field: str, *, backlog: int = 1024) -> socket.socket:
    """A non-blocking listening socket. Raises InvalidInput that names `field` when the address cannot be had."""
    try:
        sock = socket.create_server((host, port), backlog=backlog, family=_family(host))
    except OSError as error:
        raise InvalidInput(field, f"{host}:{port}", f"cannot listen here: {error.strerror or error}") from error
    sock.setblocking(False)
    return sock


async def dial(host: str, port: int, timeout_s: float) -> socket.socket:
    """A connected non-blocking socket, trying each address that `host` has. Raises TimedOut or Unreachable."""
    loop = asyncio.get_running_loop()
    last: OSError | None = None
    try:
        async with asyncio.timeout(timeout_s):
            for family, kind, proto, _name, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
                sock = socket.socket(family, kind, proto)
                sock.setblocking(False)
                try:
                    await loop.sock_connect(sock, address)
                    return sock
                except OSError as error:
                    last = error
                    sock.close()
                except BaseException:
                    sock.close()
                    raise
    except TimeoutError as error:
        raise TimedOut(f"{host}:{port} did not answer within {timeout_s:g} s") from error
    except OSError as error:  # name resolution
        raise Unreachable(f"{host}:{port}: {error}") from error
    raise Unreachable(f"{host}:{port}: {last.strerror if last else 'no address'}")


async def wait_ready(sock: socket.socket, *, write: bool) -> None:
    """Until `sock` can be read (or written). The caller sets the bound."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    fd = sock.fileno()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    (loop.add_writer if write else loop.add_reader)(fd, wake)
    try:
        await ready
    finally:
        (loop.remove_writer if write else loop.remove_reader)(fd)


def _tune_line(sock: socket.socket, dead_after_s: int) -> None:
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    _try(sock, socket.IPPROTO_TCP, _TCP_USER_TIMEOUT, dead_after_s * 1000, "TCP_USER_TIMEOUT")


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _try(sock: socket.socket, level: int, option: int, value: int, name: str) -> None:
    try:
        sock.setsockopt(level, option, value)
    except OSError as error:
        _warn_once(name, f"{name} cannot be set to {value}: {error.strerror}")


def _warn_once(key: str, message: str) -> None:
    if key not in _warned:
        _warned.add(key)
        _log.warning(message)
