"""Who is next, who is out, and the plan that comes of it."""

from __future__ import annotations

from tests.unit.router.test_openai import config

from pdd.policy.pipeline import Pipeline, Reason
from pdd.router.events import Role
from pdd.router.fleet import PROBES_TO_DOWN, Address, Fleet
from pdd.router.planning import Planner
from pdd.router.prefix import BlockChain
from pdd.router.target import Target

NONE: frozenset[str] = frozenset()


def address(name: str, instance: str = "", *, connected: bool = True) -> Address:
    return Address(name, Target(name, 1), name, instance, connected)


def fleet(prefill: int = 1, relay: int = 1, main: int = 1, sessions: int = 2) -> Fleet:
    made = Fleet(relay_sessions_max=sessions, capacity_bps=100e6, rtt_s=0.02)
    for role, count in ((Role.PREFILL, prefill), (Role.RELAY, relay), (Role.MAIN, main)):
        made.update(role, [address(f"{role.value}-{k}") for k in range(count)], 0.0)
    return made


def test_relay_with_fewest_sessions_is_next_and_a_full_one_never() -> None:
    made = fleet(relay=2)
    first, second = made.engines[Role.RELAY].values()
    first.sessions = 1
    assert made.pick_relay(NONE, 0.0) is second
    first.sessions = second.sessions = 2
    assert made.pick_relay(NONE, 0.0) is None and made.relay_exists(0.0)


def test_a_draining_relay_gets_no_new_session_until_the_drain_ends() -> None:
    made = fleet()
    assert made.drain(["relay-decode-0", "10.9.9.9"], until_s=30.0) == 1
    assert made.pick_relay(NONE, 29.0) is None
    assert made.pick_relay(NONE, 30.0) is not None


def test_prefill_with_the_prefix_is_next_unless_it_is_much_busier() -> None:
    made = fleet(prefill=2)
    hashes = BlockChain(16, range(1600)).hashes
    made.index.add("prefill-1", hashes)
    assert made.pick(Role.PREFILL, hashes, NONE, 0.0) is made.find(Role.PREFILL, "prefill-1")
    made.engines[Role.PREFILL]["prefill-1"].sessions = 5
    assert made.pick(Role.PREFILL, hashes, NONE, 0.0) is made.find(Role.PREFILL, "prefill-0")


def test_avoided_engines_are_used_only_when_no_other_is_left() -> None:
    made = fleet(prefill=2)
    picked = made.pick(Role.PREFILL, (), frozenset({"prefill-0"}), 0.0)
    assert picked is not None and picked.id == "prefill-1"
    picked = made.pick(Role.PREFILL, (), frozenset({"prefill-0", "prefill-1"}), 0.0)
    assert picked is not None


def test_a_refused_connection_takes_out_until_a_probe_succeeds() -> None:
    made = fleet()
    engine = made.engines[Role.PREFILL]["prefill-0"]
    made.failed(engine, 0.0, unreachable=True)
    assert not engine.ready(0.4) and not engine.ready(3600.0)
    made.probed(engine, 1.0, ok=False, unreachable=True)
    assert not engine.ready(3600.0)
    made.probed(engine, 2.0, ok=True)
    assert engine.ready(2.0)


def test_errors_and_slow_probes_take_out_only_when_they_repeat() -> None:
    made = fleet()
    engine = made.engines[Role.PREFILL]["prefill-0"]
    for _ in range(PROBES_TO_DOWN - 1):
        made.failed(engine, 0.0, unreachable=False)
        made.probed(engine, 0.0, ok=False)
    assert engine.ready(0.0)
    made.probed(engine, 0.0, ok=False)
    assert not engine.ready(0.0)
    made.probed(engine, 0.0, ok=True)
    assert engine.ready(0.0) and engine.known_good


def test_a_new_instance_and_a_lost_engine_hold_no_blocks() -> None:
    made = fleet()
    hashes = BlockChain(16, range(160)).hashes
    made.index.add("main-decode-0", hashes)
    made.update(Role.MAIN, [address("main-decode-0", "2")], 1.0)
    assert made.index.size("main-decode-0") == 0
    made.index.add("main-decode-0", hashes)
    gone = made.update(Role.MAIN, [], 2.0)
    assert [engine.id for engine in gone] == ["main-decode-0"] and gone[0].suspect_since_s == 2.0
    assert made.index.size("main-decode-0") == 0


def test_a_suspect_main_keeps_its_blocks_but_gets_no_call() -> None:
    made = fleet()
    made.index.add("main-decode-0", BlockChain(16, range(160)).hashes)
    made.update(Role.MAIN, [address("main-decode-0", connected=False)], 3.0)
    engine = made.engines[Role.MAIN]["main-decode-0"]
    assert not engine.ready(3.0) and engine.suspect_since_s == 3.0 and made.index.size("main-decode-0") == 10
    made.update(Role.MAIN, [address("main-decode-0")], 4.0)
    assert engine.ready(4.0) and engine.suspect_since_s is None


def planner(made: Fleet) -> Planner:
    return Planner(config(), made)


def test_the_main_with_the_prefix_is_planned() -> None:
    made = fleet(main=2)
    hashes = BlockChain(16, range(8000)).hashes
    made.index.add("main-decode-1", hashes)
    plan = planner(made).plan(8000, hashes, 1000, 0.0)
    assert (plan.pipeline, plan.reason, plan.main) == (Pipeline.P_MD, Reason.PREFIX_CACHED, "main-decode-1")
    assert plan.missing_bytes == 0 and plan.main_cached_tokens == 8000


def test_a_cold_long_prompt_is_relayed_and_a_short_one_is_not() -> None:
    made = fleet()
    plan = planner(made).plan(8000, (), 1000, 0.0)
    assert plan.pipeline is Pipeline.P_RLD_MD and plan.main == "main-decode-0" and 2.6 < plan.wait_s < 2.7
    assert planner(made).plan(100, (), 1000, 0.0).pipeline is Pipeline.P_MD


def test_what_is_under_way_lengthens_the_wait() -> None:
    made = fleet()
    made.queue.add(0.0, 100e6, 12_500_000)
    assert planner(made).plan(100, (), 1000, 0.0).pipeline is Pipeline.P_RLD_MD
    assert planner(made).plan(100, (), 1000, 1.0).pipeline is Pipeline.P_MD


def test_without_a_main_all_is_local_and_the_way_back_is_held() -> None:
    made = fleet()
    planning = planner(made)
    assert planning.plan(100, (), 10, 0.0).pipeline is Pipeline.P_MD
    made.update(Role.MAIN, [address("main-decode-0", connected=False)], 1.0)
    lost = planning.plan(100, (), 10, 1.0)
    assert (lost.pipeline, lost.reason, lost.main) == (Pipeline.P_RLD, Reason.LINE_LOST, "") and planning.mode.local
    made.update(Role.MAIN, [address("main-decode-0")], 2.0)
    assert planning.plan(100, (), 10, 2.0).reason is Reason.LINE_RECOVERING
    assert planning.plan(100, (), 10, 20.0).pipeline is Pipeline.P_MD


def test_an_override_is_not_held_back_by_the_ramp() -> None:
    made = fleet()
    planning = planner(made)
    planning.plan(100, (), 10, 0.0)
    made.update(Role.MAIN, [address("main-decode-0", connected=False)], 1.0)
    planning.observe_line(1.0)
    made.update(Role.MAIN, [address("main-decode-0")], 2.0)
    plan = planning.plan(100, (), 10, 2.0, override=Pipeline.P_MD)
    assert (plan.pipeline, plan.main) == (Pipeline.P_MD, "main-decode-0")


def test_another_process_at_the_same_address_holds_no_blocks() -> None:
    """A container that restarts between two health checks is never seen to be away."""
    made = fleet()
    engine = made.engines[Role.MAIN]["main-decode-0"]
    hashes = BlockChain(16, range(160)).hashes
    made.index.add(engine.id, hashes)
    for process in ("first", "first", ""):  # the first name is no news, and none says nothing
        made.probed(engine, 0.0, ok=True, process=process)
    assert made.index.match(engine.id, hashes) == 10
    made.probed(engine, 1.0, ok=True, process="second")
    assert made.index.match(engine.id, hashes) == 0 and engine.ready(1.0)
