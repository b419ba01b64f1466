"""The userspace line: packets go through two TUN devices and this process. For kernels without netem.

TUN segmentation offload (IFF_VNET_HDR, TUNSETOFFLOAD) lets one read carry up to 64 KiB, so that plain Python moves
about 2 Gbit/s. The price: a drop then hits a whole burst, so with loss the devices are opened without offload.

Each end's device carries its node's own address, with the other node as its peer: that route is more specific than the
container network's, so everything between the nodes takes the line, and the pods' masqueraded traffic keeps the node's
address. When the process ends, however it ends, the kernel removes the devices, and with them address and route.
"""

from __future__ import annotations

import fcntl
import os
import random
import struct
import subprocess
import time
from dataclasses import dataclass

from e2e.wan.line import LineSettings, Shaper
from e2e.wan.packets import Filter, line_bytes, ports

DEVICE = "wan0"
IFF_TUN, IFF_NO_PI, IFF_VNET_HDR = 0x0001, 0x1000, 0x4000
TUNSETIFF, TUNSETOFFLOAD = 0x400454CA, 0x400454D0
TUN_F_CSUM, TUN_F_TSO4, TUN_F_TSO6 = 1, 2, 4
VIRTIO_HEADER_BYTES = 10
READS_A_TURN = 64


@dataclass(frozen=True, slots=True)
class End:
    """One end of the line: a network namespace, named by the pid of a process in it, and its node's address."""

    pid: int
    address: str


def command(*words: str) -> None:
    subprocess.run(words, check=True, timeout=20, capture_output=True, text=True)


def inside(end: End, *words: str) -> None:
    command("nsenter", "-t", str(end.pid), "-n", *words)


class TunLine:
    """Both directions. `turn` does the work that is due; the owner waits on `fds` for at most `wait_s`."""

    backend = "tun"

    def __init__(self, ends: tuple[End, End], settings: LineSettings) -> None:
        self.settings = settings
        self.filter = Filter()
        self.offload = settings.loss == 0
        self.header = VIRTIO_HEADER_BYTES if self.offload else 0
        self.fds: list[int] = []
        self._shapers = (Shaper(settings), Shaper(settings))
        self._sent_bytes, self._sent_packets, self._filtered = [0, 0], [0, 0], [0, 0]
        self._by_port: dict[int, list[int]] = {}
        for side, end in enumerate(ends):
            self.fds.append(self._open(f"pddwan{side}", end, ends[1 - side]))

    def _open(self, name: str, end: End, peer: End) -> int:
        fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        flags = IFF_TUN | IFF_NO_PI | (IFF_VNET_HDR if self.offload else 0)
        fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
        if self.offload:
            fcntl.ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6)
        command("ip", "link", "set", name, "netns", str(end.pid), "name", DEVICE)
        inside(end, "ip", "address", "add", end.address, "peer", f"{peer.address}/32", "dev", DEVICE)
        inside(end, "ip", "link", "set", DEVICE, "mtu", "1500", "txqueuelen", "10000", "up")
        return fd

    def configure(self, settings: LineSettings) -> None:
        if settings.loss and self.offload:
            raise ValueError("loss: needs a line started with loss (offload off): restart it with --loss above 0")
        self.settings = settings
        for shaper in self._shapers:
            shaper.settings = settings

    def restrict(self, new: Filter) -> None:
        if new.partitioned and not self.filter.partitioned:
            for side, shaper in enumerate(self._shapers):
                self._filtered[side] += shaper.clear()
        self.filter = new
        for port in new.counted:
            self._by_port.setdefault(port, [0, 0])

    def wait_s(self) -> float | None:
        times = [at for shaper in self._shapers if (at := shaper.next_at_s()) is not None]
        return max(0.0, min(times) - time.monotonic()) if times else None

    def turn(self, readable: list[int]) -> None:
        self._deliver()
        for side, fd in enumerate(self.fds):
            if fd in readable:
                self._take(side, fd)
        self._deliver()

    def _take(self, side: int, fd: int) -> None:
        for _ in range(READS_A_TURN):
            try:
                packet = os.read(fd, 70000)
            except BlockingIOError:
                return
            pair = ports(packet, self.header) if self.filter.looks_at_ports else None
            if not self.filter.passes(pair):
                self._filtered[side] += 1
                continue
            # gso_size of struct virtio_net_hdr
            segment_bytes = int.from_bytes(packet[4:6], "little") if self.offload else 0
            size = line_bytes(packet, self.header, segment_bytes)
            if not self._shapers[side].offer(packet, size, time.monotonic(), random.random(), random.random()):
                continue
            self._sent_bytes[side] += size
            self._sent_packets[side] += 1
            if pair is not None:
                for port in set(pair) & self.filter.counted:
                    self._by_port[port][side] += size

    def _deliver(self) -> None:
        now_s = time.monotonic()
        for side, shaper in enumerate(self._shapers):
            for packet in shaper.due(now_s):
                try:
                    os.write(self.fds[1 - side], packet)
                except BlockingIOError:
                    shaper.dropped_queue += 1

    def stats(self) -> dict[str, object]:
        now_s = time.monotonic()
        directions = {
            name: {
                "bytes": self._sent_bytes[side],
                "packets": self._sent_packets[side],
                "dropped_queue": self._shapers[side].dropped_queue,
                "dropped_loss": self._shapers[side].dropped_loss,
                "dropped_filter": self._filtered[side],
                "backlog_bytes": int(self._shapers[side].backlog_bytes(now_s)),
            }
            for side, name in enumerate(("a_to_b", "b_to_a"))
        }
        counted = {str(port): {"a_to_b": ab, "b_to_a": ba} for port, (ab, ba) in self._by_port.items()}
        return {**directions, "ports": counted}

    def close(self) -> None:
        for fd in self.fds:
            os.close(fd)
        self.fds.clear()
