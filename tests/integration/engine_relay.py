"""A TCP relay for tests that can damage or hold back the answers, or stand as a CONNECT proxy."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType


class Relay:
    """Forwards connections to 127.0.0.1:target, or to where CONNECT says (then target is 0 and `targets` notes it).

    flip_at: byte of the answers in which one bit is turned. hold: forward no answer until `gate` is set.
    """

    def __init__(self, target: int = 0, *, flip_at: int = -1, hold: bool = False) -> None:
        self._target = target
        self._flip_at = flip_at
        self.gate = threading.Event()
        if not hold:
            self.gate.set()
        self.targets: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._sockets: list[socket.socket] = [self._listener]
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Relay:
        self._spawn(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.gate.set()
        for end in self._sockets:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)
        for end in self._sockets:
            end.close()

    def _spawn(self, function: object, *args: object) -> None:
        thread = threading.Thread(target=function, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(near)
            with contextlib.suppress(OSError):
                far = socket.create_connection(
                    ("127.0.0.1", self._target) if self._target else self._read_connect(near)
                )
                self._sockets.append(far)
                if not self._target:
                    near.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                self._spawn(_pipe, near, far, -1, None)
                self._spawn(_pipe, far, near, self._flip_at, self.gate)

    def _read_connect(self, near: socket.socket) -> tuple[str, int]:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            byte = near.recv(1)
            if not byte:
                raise ConnectionError("no CONNECT came")
            head += byte
        method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
        assert method == "CONNECT"
        self.targets.append(target)
        host, port = target.rsplit(":", 1)
        return host, int(port)


def _pipe(source: socket.socket, sink: socket.socket, flip_at: int, gate: threading.Event | None) -> None:
    seen = 0
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            if gate is not None:
                gate.wait(30)
            if seen <= flip_at < seen + len(data):
                damaged = bytearray(data)
                damaged[flip_at - seen] ^= 0x10
                data = bytes(damaged)
            seen += len(data)
            sink.sendall(data)
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
