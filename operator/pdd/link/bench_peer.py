"""The plain programs at both ends of a link bench: a source, an echo, readers and a pinger. Blocking sockets, threads.

Each runs in a process of its own, so that what is measured does not share an interpreter with what measures.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import struct
import sys
import threading
import time

CHUNK_BYTES = 256 * 1024
TIMEOUT_S = 120.0
_SIZE = struct.Struct("!Q")
PING_BYTES = 64


def percentile(sorted_values: list[float], share: float) -> float:
    """Nearest rank; 0 for an empty list."""
    return sorted_values[min(len(sorted_values) - 1, int(share * len(sorted_values)))] if sorted_values else 0.0


def serve_source(sock: socket.socket) -> None:
    """For each 8-byte size that comes, that many bytes."""
    block = memoryview(bytes(range(256)) * (CHUNK_BYTES // 256))
    while (request := sock.recv(_SIZE.size, socket.MSG_WAITALL)) and len(request) == _SIZE.size:
        (left,) = _SIZE.unpack(request)
        while left:
            part = block[: min(left, CHUNK_BYTES)]
            sock.sendall(part)
            left -= len(part)


def serve_echo(sock: socket.socket) -> None:
    while data := sock.recv(65536):
        sock.sendall(data)


def connect(target: str, proxy: str) -> socket.socket:
    """To `host:port` directly, or by CONNECT through the proxy at `host:port`; at a proxy a target may be any name."""
    host, _, port = (proxy or target).rpartition(":")
    sock = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if proxy:
        sock.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        head = b""
        while b"\r\n\r\n" not in head:
            got = sock.recv(1)
            if not got:
                raise ConnectionError(f"{proxy} closed on CONNECT {target}: {head!r}")
            head += got
        if b" 200 " not in head.split(b"\r\n", 1)[0]:
            raise ConnectionError(f"{proxy} refuses {target}: {head!r}")
    return sock


def read_exactly(sock: socket.socket, size: int, buffer: memoryview) -> None:
    while size:
        got = sock.recv_into(buffer[: min(size, len(buffer))])
        if not got:
            raise ConnectionError(f"{size} bytes are missing")
        size -= got


def read_objects(target: str, proxy: str, size: int, connections: int, rounds: int) -> dict[str, object]:
    """`connections` readers at once, each reads its share of `size` bytes, `rounds` times. Seconds of each round."""
    socks = [connect(target, proxy) for _ in range(connections)]
    share = size // connections
    seconds = []
    errors: list[str] = []

    def read(sock: socket.socket) -> None:
        try:
            sock.sendall(_SIZE.pack(share))
            read_exactly(sock, share, memoryview(bytearray(1 << 20)))
        except OSError as error:
            errors.append(str(error))

    for _ in range(rounds):
        began = time.monotonic()
        threads = [threading.Thread(target=read, args=(sock,)) for sock in socks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds.append(time.monotonic() - began)
    for sock in socks:
        sock.close()
    return {"bytes": share * connections, "seconds": seconds, "errors": errors}


def ping(target: str, proxy: str, seconds: float, interval_ms: float) -> dict[str, object]:
    """Round trips of small messages, one every `interval_ms`, each after the answer to the one before."""
    sock = connect(target, proxy)
    buffer = memoryview(bytearray(PING_BYTES))
    times = []
    end = time.monotonic() + seconds
    while (now := time.monotonic()) < end:
        sock.sendall(bytes(PING_BYTES))
        read_exactly(sock, PING_BYTES, buffer)
        times.append((time.monotonic() - now) * 1000)
        time.sleep(max(0.0, interval_ms / 1000 - (time.monotonic() - now)))
    sock.close()
    times.sort()
    return {
        "count": len(times),
        "p50": round(percentile(times, 0.5), 3),
        "p99": round(percentile(times, 0.99), 3),
        "max": round(times[-1], 3) if times else 0.0,
    }


def serve(host: str, port: int, kind: str) -> None:
    """Until killed. Prints `ready`."""
    handler = serve_source if kind == "source" else serve_echo
    listener = socket.create_server((host, port), backlog=512)
    print("ready", flush=True)
    while True:
        sock, _ = listener.accept()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_guard, args=(handler, sock), daemon=True).start()


def _guard(handler: object, sock: socket.socket) -> None:
    with contextlib.suppress(OSError), sock:
        assert callable(handler)
        handler(sock)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for kind in ("source", "echo"):
        one = commands.add_parser(kind)
        one.add_argument("--host", default="127.0.0.1")
        one.add_argument("--port", type=int, required=True)
    for kind in ("read", "ping"):
        one = commands.add_parser(kind)
        one.add_argument("--target", required=True)
        one.add_argument("--proxy", default="")
    commands.choices["read"].add_argument("--bytes", type=int, required=True)
    commands.choices["read"].add_argument("--connections", type=int, default=1)
    commands.choices["read"].add_argument("--rounds", type=int, default=1)
    commands.choices["ping"].add_argument("--seconds", type=float, default=3.0)
    commands.choices["ping"].add_argument("--interval-ms", type=float, default=10.0)
    args = parser.parse_args()
    if args.command in ("source", "echo"):
        serve(args.host, args.port, args.command)
    elif args.command == "read":
        print(json.dumps(read_objects(args.target, args.proxy, args.bytes, args.connections, args.rounds)))
    else:
        print(json.dumps(ping(args.target, args.proxy, args.seconds, args.interval_ms)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
