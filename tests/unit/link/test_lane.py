"""The lane machine, played without sockets: order, credit, fairness, half-close, reset, and the death of streams."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from tests.unit.link.wire import LIMITS, Wire

from pdd.link.channel import INITIAL_CREDIT_BYTES
from pdd.link.events import Drained
from pdd.link.frames import Frame, FrameError, FrameType


def message(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def send_all(wire: Wire, side: str, channel: int, data: bytes, step: int = 3000) -> None:
    """A source that heeds back-pressure."""
    lane = wire.end(side).lane
    for at in range(0, len(data), step):
        if not lane.write(channel, data[at : at + step]):
            wire.run()
    lane.finish(channel)
    wire.run()


def test_one_connection_is_striped_over_all_streams_and_arrives_in_order() -> None:
    wire = Wire(streams=4)
    channel = wire.b.lane.open("10.0.0.7:8001")
    wire.run()
    assert wire.a.opened == {channel: "10.0.0.7:8001"}
    assert wire.b.accepted == [channel]
    data = message(200_000)
    send_all(wire, "a", channel, data)
    assert bytes(wire.b.got[channel]) == data
    assert min(wire.carried.values()) > 20_000, "each stream must carry a share"
    assert wire.a.lane.counters.sent_bytes == len(data)
    assert wire.a.lane.unacked_bytes == wire.a.lane.queued_bytes == 0


def test_streams_that_deliver_in_any_order_do_not_mix_the_bytes() -> None:
    dice = random.Random(5)
    wire = Wire(streams=4)
    channel = wire.b.lane.open("t")
    wire.run()
    data = message(60_000)
    wire.a.lane.write(channel, data)
    wire.a.lane.finish(channel)
    for _ in range(3000):
        stream = dice.choice(wire.streams)
        (wire.pull if dice.random() < 0.6 else wire.arrive)("a", stream)
    wire.run()
    assert bytes(wire.b.got[channel]) == data
    assert wire.b.finished == [channel]


def test_data_that_overtakes_its_open_waits_for_it() -> None:
    wire = Wire(streams=2)
    channel = wire.b.lane.open("t")
    wire.b.lane.write(channel, b"hello")
    assert wire.pull("b", 0)  # OPEN on stream 0
    assert wire.pull("b", 1)  # DATA on stream 1
    wire.arrive("b", 1)
    assert wire.a.opened == {}
    assert wire.a.got == {}
    wire.arrive("b", 0)
    assert wire.a.opened == {channel: "t"}
    assert bytes(wire.a.got[channel]) == b"hello"


def test_half_close_leaves_the_other_direction_open() -> None:
    wire = Wire()
    channel = wire.b.lane.open("t")
    send_all(wire, "b", channel, b"request")
    assert wire.a.finished == [channel]
    assert wire.b.finished == []
    send_all(wire, "a", channel, message(30_000))
    assert bytes(wire.b.got[channel]) == message(30_000)
    assert wire.b.finished == [channel]
    assert wire.a.lane.channels == wire.b.lane.channels == {}


def test_a_slow_reader_stops_its_own_channel_only() -> None:
    wire = Wire()
    slow, quick = wire.b.lane.open("slow"), wire.b.lane.open("quick")
    wire.run()
    wire.b.slow.add(slow)
    for _ in range(300):
        wire.a.lane.write(slow, bytes(1000))
    send_all(wire, "a", quick, message(300_000))
    assert bytes(wire.b.got[quick]) == message(300_000)
    assert len(wire.b.got[slow]) == wire.b.lane.channels[slow].window == LIMITS.window_bytes
    assert wire.a.lane.starved
    wire.b.release(slow)
    wire.run()
    assert len(wire.b.got[slow]) == 300_000


def test_a_source_is_told_to_stop_and_to_go_on() -> None:
    wire = Wire()
    channel = wire.b.lane.open("t")
    wire.run()
    lane = wire.a.lane
    assert lane.write(channel, bytes(LIMITS.send_high_bytes - 1))
    assert not lane.write(channel, bytes(1))
    events = []
    while lane.pull_data(0) is not None:
        events += lane.take_events()
    assert events.count(Drained(channel)) == 1


def test_channels_share_a_lane_frame_by_frame() -> None:
    wire = Wire(streams=1)
    channels = [wire.b.lane.open(str(i)) for i in range(3)]
    wire.run()
    for channel in channels:
        wire.a.lane.write(channel, bytes(30_000))
    for _ in range(30):
        wire.pull("a", 0)
        wire.arrive("a", 0)
    sizes = [len(wire.b.got[channel]) for channel in channels]
    assert max(sizes) - min(sizes) <= LIMITS.frame_bytes


def test_small_writes_are_joined_into_one_frame() -> None:
    wire = Wire(streams=1, limits=replace(LIMITS, frame_bytes=16_000))
    channel = wire.b.lane.open("t")
    wire.run()
    for i in range(100):
        wire.a.lane.write(channel, b"%03d" % i)
    wire.run()
    assert bytes(wire.b.got[channel]) == b"".join(b"%03d" % i for i in range(100))
    assert wire.max_payload == 300


def test_control_does_not_wait_behind_data() -> None:
    wire = Wire(streams=1)
    channel = wire.b.lane.open("t")
    wire.run()
    wire.a.lane.write(channel, bytes(5000))
    wire.a.lane.open("other way")
    assert wire.pull("a", 0, data=False), "the OPEN leaves although data was queued first"
    wire.arrive("a", 0)
    assert list(wire.b.opened.values()) == ["other way"]


def test_frames_of_a_dead_stream_go_out_again_on_the_others() -> None:
    wire = Wire(streams=4)
    channel = wire.b.lane.open("t")
    wire.run()
    data = message(50_000)
    wire.a.lane.write(channel, data)
    wire.a.lane.finish(channel)
    for stream in wire.streams:
        for _ in range(5):
            wire.pull("a", stream)
    wire.kill(2)
    wire.run()
    assert bytes(wire.b.got[channel]) == data
    assert wire.a.lane.counters.resent_frames == 5


def test_all_streams_die_and_the_engines_see_only_a_pause() -> None:
    wire = Wire(streams=2)
    channel = wire.b.lane.open("t")
    wire.b.lane.write(channel, b"read, please")
    wire.run()
    data = message(40_000)
    wire.a.lane.write(channel, data)
    for stream in list(wire.streams):
        wire.pull("a", stream)
        wire.pull("a", stream)
        wire.kill(stream)
    wire.run()
    assert channel not in wire.b.reset
    wire.up()
    wire.run()
    assert bytes(wire.b.got[channel]) == data
    assert bytes(wire.a.got[channel]) == b"read, please"


def test_a_lost_ack_leads_to_a_duplicate_that_is_dropped() -> None:
    wire = Wire(streams=1)
    channel = wire.b.lane.open("t")
    wire.run()
    wire.a.lane.write(channel, b"once")
    wire.pull("a", 0)
    wire.arrive("a", 0)  # it arrived, but the stream dies before the ACK leaves
    wire.kill(0)
    again = wire.up()
    while wire.pull("a", again):  # sent again before the other end's next ACK is there
        pass
    wire.run()
    assert bytes(wire.b.got[channel]) == b"once"
    assert wire.b.lane.counters.duplicate_frames == 1
    assert wire.a.lane.unacked_bytes == 0


def test_an_ack_that_comes_first_spares_the_second_sending() -> None:
    wire = Wire(streams=2)
    channel = wire.b.lane.open("t")
    wire.run()
    wire.a.lane.write(channel, b"once")
    wire.pull("a", 0)
    wire.arrive("a", 0)
    wire.kill(0)
    wire.pull("b", 1)
    wire.arrive("b", 1)
    assert not wire.a.lane.has_data
    assert wire.a.lane.unacked_bytes == 0


def test_reset_ends_both_ends_and_frees_what_was_queued() -> None:
    wire = Wire()
    channel = wire.b.lane.open("t")
    wire.run()
    wire.a.lane.write(channel, bytes(50_000))
    for _ in range(3):
        wire.pull("a", 0)
    wire.a.lane.reset(channel, "LocalReset")
    assert wire.a.lane.queued_bytes == wire.a.lane.unacked_bytes == 0
    wire.run()
    assert wire.b.reset == {channel: "LocalReset"}
    assert wire.a.lane.channels == wire.b.lane.channels == {}
    assert wire.a.lane.counters.resets == {"LocalReset": 1}


def test_a_stream_that_dies_after_a_reset_does_not_block_later_channels() -> None:
    wire = Wire(streams=2)
    first = wire.b.lane.open("first")
    wire.run()
    wire.a.lane.write(first, bytes(3000))
    for _ in range(3):
        wire.pull("a", 0)
    wire.a.lane.reset(first, "LocalReset")
    wire.kill(0)
    second = wire.b.lane.open("second")
    wire.run()
    send_all(wire, "a", second, message(20_000))
    assert bytes(wire.b.got[second]) == message(20_000)
    assert wire.a.lane.unacked_bytes == 0


def test_a_reset_that_overtakes_its_open_leaves_no_ghost() -> None:
    wire = Wire(streams=2)
    channel = wire.b.lane.open("t")
    assert wire.pull("b", 0)
    wire.b.lane.reset(channel, "LocalReset")
    assert wire.pull("b", 1)
    wire.arrive("b", 1)
    wire.arrive("b", 0)
    wire.run()
    assert wire.a.opened == {}
    assert wire.a.lane.channels == {}


def test_channels_beyond_the_limit_are_refused_and_the_rest_goes_on() -> None:
    wire = Wire(limits=replace(LIMITS, max_channels=2))
    channels = [wire.b.lane.open(str(i)) for i in range(3)]
    wire.run()
    assert wire.b.reset == {channels[2]: "TooManyChannels"}
    send_all(wire, "a", channels[0], b"still here")
    assert bytes(wire.b.got[channels[0]]) == b"still here"


def test_windows_shrink_when_the_budget_is_used_up_and_return() -> None:
    wire = Wire(limits=replace(LIMITS, window_budget_bytes=800_000, window_bytes=100_000, min_window_bytes=2000))
    channels = [wire.b.lane.open(str(i)) for i in range(60)]
    windows = [wire.b.lane.channels[channel].window for channel in channels]
    assert windows[0] == 100_000
    assert windows[-1] < 10_000
    assert sum(windows) <= 800_000 + 60 * 2000
    for channel in channels:
        wire.b.lane.reset(channel, "LocalReset")
    assert wire.b.lane.channels[wire.b.lane.open("again")].window == 100_000


def test_losing_the_session_resets_every_channel_with_an_event() -> None:
    wire = Wire()
    channels = {wire.b.lane.open(str(i)) for i in range(3)}
    wire.run()
    wire.b.lane.reset_all("SessionLost")
    wire.b.settle()
    assert wire.b.reset == dict.fromkeys(channels, "SessionLost")
    assert not wire.b.lane.has_urgent
    assert not wire.b.lane.has_data


@pytest.mark.parametrize(
    "frame",
    [
        Frame(FrameType.DATA, channel=1, seq=0, payload=b"x"),
        Frame(FrameType.DATA, channel=0, seq=1, payload=b"x"),
        Frame(FrameType.DATA, channel=2, seq=1, payload=b"x"),
        Frame(FrameType.DATA, channel=1, seq=1, payload=bytes(INITIAL_CREDIT_BYTES + 1)),
        Frame(FrameType.ACK, offset=5),
        Frame(FrameType.ACK, offset=0, payload=b"odd"),
        Frame(FrameType.HELLO, channel=1, seq=1),
    ],
    ids=["no seq", "no channel", "never opened", "beyond the credit", "ack of nothing", "torn ack", "no lane frame"],
)
def test_a_peer_that_breaks_the_protocol_is_noticed(frame: Frame) -> None:
    lane = Wire().a.lane
    with pytest.raises(FrameError):
        lane.receive(frame)


def test_bytes_that_overlap_are_a_broken_protocol() -> None:
    lane = Wire().a.lane
    lane.receive(Frame(FrameType.OPEN, channel=1, seq=1, offset=1000, payload=b"t"))
    lane.receive(Frame(FrameType.DATA, channel=1, seq=2, offset=0, payload=b"abc"))
    with pytest.raises(FrameError, match="unexpected bytes"):
        lane.receive(Frame(FrameType.DATA, channel=1, seq=3, offset=2, payload=b"cd"))


@pytest.mark.parametrize("seed", range(25))
def test_any_schedule_of_deaths_and_returns_delivers_every_byte_once(seed: int) -> None:
    """Random writes, finishes, resets, deliveries, stream deaths (noticed at once or late) and new streams."""
    dice = random.Random(seed)
    wire = Wire(streams=3)
    sent: dict[tuple[str, int], bytearray] = {}
    aborted: set[int] = set()
    late: list[tuple[int, str]] = []
    for _ in range(2500):
        move = dice.random()
        side = dice.choice("ab")
        if move < 0.02 and len(wire.b.lane.channels) < 10:
            channel = wire.end(side).lane.open("t")
            sent["a", channel], sent["b", channel] = bytearray(), bytearray()
        elif move < 0.25:
            live = list(wire.end(side).lane.channels)
            if live:
                channel = dice.choice(live)
                if not wire.end(side).lane.channels[channel].fin_wanted:
                    data = dice.randbytes(dice.choice([1, 30, 900, 4000]))
                    sent[side, channel] += data
                    wire.end(side).lane.write(channel, data)
        elif move < 0.255:
            live = list(wire.end(side).lane.channels)
            if live:
                wire.end(side).lane.finish(dice.choice(live))
        elif move < 0.257:
            live = list(wire.end(side).lane.channels)
            if live:
                channel = dice.choice(live)
                aborted.add(channel)
                wire.end(side).lane.reset(channel, "LocalReset")
        elif move < 0.262 and wire.streams:
            stream = dice.choice(wire.streams)
            noticed = dice.choice(["ab", "a", "b", ""])
            wire.kill(stream, seen_by=noticed)
            late += [(stream, end) for end in "ab" if end not in noticed]
        elif move < 0.28 and len(wire.streams) < 4:
            wire.up()
        elif move < 0.30 and late:
            stream, end = late.pop(0)
            wire.end(end).lane.stream_down(stream)
        elif wire.streams:
            stream = dice.choice(wire.streams)
            (wire.pull if dice.random() < 0.5 else wire.arrive)(side, stream)
    for stream, end in late:
        wire.end(end).lane.stream_down(stream)
    wire.up()
    wire.run()
    for side, channel in sent:
        if channel not in aborted:
            other = wire.b if side == "a" else wire.a
            assert bytes(other.got.get(channel, b"")) == bytes(sent[side, channel])
    for end in (wire.a, wire.b):
        assert end.lane.unacked_bytes == end.lane.queued_bytes == 0
