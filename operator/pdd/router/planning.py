"""From the fleet as it is to the plan of one request: gathers the situation, the policy decides."""

from __future__ import annotations

from collections.abc import Sequence

from pdd.api.config import RouterConfig
from pdd.policy.kv import MissingKV, compute_kv_bytes, compute_missing
from pdd.policy.line import compute_wait_s
from pdd.policy.mode import LineMode, admit, observe
from pdd.policy.pipeline import Pipeline, Rules, Situation, choose_pipeline
from pdd.policy.placement import score_main
from pdd.router.events import Plan, Role
from pdd.router.fleet import Engine, Fleet


class Planner:
    """Remembers what the policy needs to remember: the last choice (hysteresis) and the line's mode."""

    def __init__(self, config: RouterConfig, fleet: Fleet) -> None:
        self._config = config
        self._fleet = fleet
        self._previous: Pipeline | None = None
        self.mode = LineMode()
        self._rules = Rules(
            relay_threshold_s=config.relay_threshold_ms / 1000,
            abnormal_enabled=config.abnormal.enabled,
            abnormal_max_output_tokens=config.abnormal.max_output_tokens,
            abnormal_min_transfer_s=config.abnormal.min_transfer_ms / 1000,
        )

    def observe_line(self, now_s: float) -> bool:
        """Look whether any MD can be reached; call it regularly. Returns whether the mode is local."""
        ready = any(engine.ready(now_s) for engine in self._fleet.engines[Role.MAIN].values())
        self.mode = observe(self.mode, ready, now_s)
        return self.mode.local

    def plan(
        self,
        tokens: int,
        hashes: Sequence[int],
        max_output_tokens: int,
        now_s: float,
        *,
        pinned: bool = False,
        override: Pipeline | None = None,
        avoid: frozenset[str] = frozenset(),
    ) -> Plan:
        """The plan for a prompt of `tokens` tokens with these block hashes."""
        main, missing, wait_s = self._best_main(tokens, hashes, now_s, avoid)
        self.observe_line(now_s)
        line_open = True
        if override is None and main is not None:
            self.mode, line_open = admit(self.mode, now_s)
        choice = choose_pipeline(
            self._rules,
            Situation(
                wait_s=wait_s,
                missing_bytes=missing.bytes_,
                max_output_tokens=max_output_tokens,
                main_ready=main is not None,
                line_open=line_open,
                relay_exists=self._fleet.relay_exists(now_s),
                relay_free=self._fleet.pick_relay(frozenset(), now_s) is not None,
                previous=self._previous,
                pinned=pinned,
                override=override,
            ),
        )
        if override is None and choice.pipeline in (Pipeline.P_MD, Pipeline.P_RLD_MD):
            self._previous = choice.pipeline
        return Plan(
            pipeline=choice.pipeline,
            reason=choice.reason,
            main=main.id if main is not None and choice.crosses_line else "",
            prompt_bytes=compute_kv_bytes(self._config.kv, tokens),
            missing_bytes=missing.bytes_,
            missing_tokens=missing.tokens,
            main_cached_tokens=tokens - missing.tokens,
            wait_s=wait_s,
        )

    def _best_main(
        self, tokens: int, hashes: Sequence[int], now_s: float, avoid: frozenset[str]
    ) -> tuple[Engine | None, MissingKV, float]:
        """The MD with the least predicted wait, load counted in."""
        best: tuple[float, Engine | None, MissingKV, float] = (
            0.0, None, compute_missing(self._config.kv, tokens, 0), 0.0,
        )  # fmt: skip
        for engine in self._fleet.candidates(Role.MAIN, avoid, now_s):
            missing = compute_missing(self._config.kv, tokens, self._fleet.index.match(engine.id, hashes))
            wait_s = compute_wait_s(self._fleet.line_state(engine, now_s), missing.bytes_)
            score = score_main(wait_s, engine.sessions)
            if best[1] is None or score < best[0]:
                best = (score, engine, missing, wait_s)
        return best[1], best[2], best[3]
