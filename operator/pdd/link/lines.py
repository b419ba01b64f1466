"""Single frames on a fresh TLS socket, before it becomes a carrier."""

from __future__ import annotations

import asyncio
import ssl

from pdd.common.errors import Forbidden, TimedOut, Unreachable
from pdd.link.frames import HEADER_BYTES, Frame, FrameError, check_payload, decode_header, encode
from pdd.link.hello import MAX_HELLO_BYTES
from pdd.link.sockets import wait_ready
from pdd.link.tls import describe


async def send_frame(sock: ssl.SSLSocket, frame: Frame, timeout_s: float) -> None:
    """Write one whole frame. Raises TimedOut, Unreachable."""
    data = encode(frame)
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                try:
                    sock.send(data)  # all of it or an exception
                    return
                except ssl.SSLWantWriteError:
                    await wait_ready(sock, write=True)
                except ssl.SSLWantReadError:
                    await wait_ready(sock, write=False)
    except TimeoutError as error:
        raise TimedOut(f"could not send {frame.type.name} within {timeout_s:g} s") from error
    except OSError as error:
        raise Unreachable(f"the connection broke: {error.strerror or error}") from error


async def read_frame(sock: ssl.SSLSocket, timeout_s: float, max_bytes: int = MAX_HELLO_BYTES) -> Frame:
    """Read exactly one frame and not a byte more. Raises FrameError, Forbidden, TimedOut, Unreachable.

    In TLS 1.3 a server's refusal of our certificate only shows here, at the first read.
    """
    try:
        async with asyncio.timeout(timeout_s):
            header = decode_header(await _read_exactly(sock, HEADER_BYTES))
            if header.length > max_bytes:
                raise FrameError(f"a {header.type.name} frame of {header.length} bytes; the limit here is {max_bytes}")
            return check_payload(header, await _read_exactly(sock, header.length))
    except TimeoutError as error:
        raise TimedOut(f"no answer within {timeout_s:g} s") from error
    except ssl.SSLError as error:
        raise Forbidden(f"TLS: {describe(error)}", reason="CertificateRefused") from error
    except OSError as error:
        raise Unreachable(f"the connection broke: {error.strerror or error}") from error


async def _read_exactly(sock: ssl.SSLSocket, size: int) -> bytearray:
    data = bytearray(size)
    view = memoryview(data)
    got = 0
    while got < size:
        try:
            read = sock.recv_into(view[got:])
        except ssl.SSLWantReadError:
            await wait_ready(sock, write=False)
            continue
        except ssl.SSLWantWriteError:
            await wait_ready(sock, write=True)
            continue
        if read == 0:
            raise ConnectionResetError("closed by the other end")
        got += read
    return data
