"""`pdd demo`: both sites on this machine, one long prompt through them, and the same without hiding the transfer."""

from __future__ import annotations

import asyncio
import json
import math
import shutil
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pdd.api.engines import kv_layout, served_names, tokenizer_name
from pdd.cli.chat import ChatRun, stream_chat
from pdd.cli.console import Console
from pdd.cli.demo_report import (
    SECOND_TOKEN_LIMIT_MS,
    LineFacts,
    Measured,
    demo_document,
    demo_table,
    handoff_line,
    unmet_promises,
)
from pdd.cli.demo_show import StreamView
from pdd.cli.demo_text import Messages, follow_up, long_chat
from pdd.cli.runner.interrupt import run_interruptible
from pdd.cli.runner.spec import LocalSpec, load_local_spec
from pdd.cli.runner.stack import running_stack
from pdd.common.clock import monotonic_s
from pdd.common.errors import InvalidInput

_OUTPUT_TOKENS = 240
_FOLLOW_UP_TOKENS = 64
_LONG_TRANSFER_S = 4.0
"""From here on a short answer would be abnormal traffic, whose transfer is blocked: the demo asks for a long one."""
_LONG_OUTPUT_TOKENS = 520
_TOKENS_PER_S = 50.0


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What a person may choose. None keeps the file's value; output_tokens 0 fits the answer to the transfer."""

    file: Path
    prompt_tokens: int = 8000
    output_tokens: int = 0
    mbps: int | None = None
    rtt_ms: int | None = None
    once: bool = False
    as_json: bool = False
    keep: bool = False
    port: int = 0
    second_token_limit_ms: float = SECOND_TOKEN_LIMIT_MS


def fit_output_tokens(prompt_tokens: int, bytes_per_token: int, rate_mbps: int) -> int:
    """An answer long enough that MD takes over before it ends: the transfer's time in tokens, and 100 more."""
    transfer_s = prompt_tokens * bytes_per_token * 8 / (rate_mbps * 1e6)
    if transfer_s < _LONG_TRANSFER_S:
        return _OUTPUT_TOKENS
    return max(_LONG_OUTPUT_TOKENS, math.ceil(transfer_s * 1.3 * _TOKENS_PER_S) + 100)


def demo(options: DemoOptions, console: Console) -> int:
    """Run the demo; 0 when every promise came true, 1 otherwise, 130 after Ctrl-C."""
    spec = load_local_spec(options.file).with_line(options.mbps, options.rtt_ms)
    return run_interruptible(_demo(spec, options, console), lambda: console.say("\nstopping the processes"))


async def _demo(spec: LocalSpec, options: DemoOptions, console: Console) -> int:
    started = monotonic_s()
    console.say(f"PDD demo: {options.file.name} as processes of this machine; the line is emulated, all times are real")

    def progress(what: str, seconds: float) -> None:
        console.say(f"  {what:<68} {seconds:5.1f} s")

    async with running_stack(spec, router_port=options.port, progress=progress) as stack:
        session = DemoSession(spec, stack.router_url, stack.bulk_bytes, options, console)
        results = await stack.supervisor.guard(session.run())
        met = report(spec, options, console, results, monotonic_s() - started)
        if met and not options.as_json:
            console.say("next:")
            program = "pdd" if shutil.which("pdd") else sys.argv[0]
            console.say(f"  {f'{program} up':<20}  keep it running and talk to it with curl")
            console.say(f"  {'make kind-demo':<20}  the same file on two kind clusters")
        if options.keep:
            console.say(f"kept running: {stack.router_url}/v1   (Ctrl-C ends it)")
            await stack.supervisor.watch()
    return 0 if met else 1


@dataclass(frozen=True, slots=True)
class DemoResults:
    """The measured requests of one demo."""

    relayed: Measured
    naive: Measured
    follow_up: Measured | None


class DemoSession:
    """The requests of the demo against a router, wherever it runs. `bulk_bytes` asks the gateway how many bytes of KV
    the line has carried."""

    def __init__(
        self,
        spec: LocalSpec,
        router_url: str,
        bulk_bytes: Callable[[], Awaitable[int]],
        options: DemoOptions,
        console: Console,
    ) -> None:
        self._url = router_url
        self._bulk_bytes = bulk_bytes
        self._options = options
        self._console = console
        deployment = spec.deployment
        self._model = served_names(deployment.spec.model)[0]
        self._count = token_counter(tokenizer_name(deployment))
        layout = kv_layout(deployment)
        self._output_tokens = options.output_tokens or fit_output_tokens(
            options.prompt_tokens, layout.bytes_per_token, spec.link.spec.line.capacity_mbps
        )
        limit = deployment.spec.model.max_context_tokens
        if options.prompt_tokens + self._output_tokens > limit:
            remedy = (
                f"with {self._output_tokens} tokens of output the model holds {limit - self._output_tokens} at most"
            )
            raise InvalidInput("--prompt-tokens", options.prompt_tokens, remedy)

    async def run(self) -> DemoResults:
        """The long request, the naive one, the follow-up; then each again on one engine alone, all at once."""
        say = self._console.say
        long = self._long_chat(seed=1)
        say(f"\nlong prompt, {self._count(long):,} tokens that MD has never seen", "bold")
        relayed, relayed_bytes = await self._measure(long, self._output_tokens)
        say("\nnaive: as many new tokens, P straight to MD, nothing hides the transfer", "bold")
        naive_chat = self._long_chat(seed=2)
        naive, naive_bytes = await self._measure(naive_chat, self._output_tokens, override="P-MD")
        after: tuple[Messages, ChatRun, int] | None = None
        if not self._options.once:
            say("\nfollow-up: the first conversation goes on, MD has nearly all of it", "bold")
            messages = follow_up(long, relayed.text, "Which part should be watched next?")
            run, size = await self._measure(messages, _FOLLOW_UP_TOKENS)
            after = (messages, run, size)
        say("\nthe same prompts on one engine alone, to compare id by id", "dim")
        alone = [self._alone(long, self._output_tokens), self._alone(naive_chat, self._output_tokens)]
        if after is not None:
            alone.append(self._alone(after[0], _FOLLOW_UP_TOKENS))
        ids = [run.token_ids for run in await asyncio.gather(*alone)]
        return DemoResults(
            relayed=Measured("long prompt", relayed, ids[0], relayed_bytes),
            naive=Measured("naive", naive, ids[1], naive_bytes),
            follow_up=Measured("follow-up", after[1], ids[2], after[2]) if after is not None else None,
        )

    def _long_chat(self, seed: int) -> Messages:
        try:
            return long_chat(seed, self._options.prompt_tokens, self._count)
        except ValueError as error:
            raise InvalidInput("--prompt-tokens", self._options.prompt_tokens, str(error)) from error

    async def _measure(self, messages: Messages, tokens: int, override: str = "") -> tuple[ChatRun, int]:
        before = await self._bulk_bytes()
        view = None if self._options.as_json else StreamView(self._console)
        run = await stream_chat(self._url, self._body(messages, tokens), override=override, on_piece=view)
        if view is not None:
            view.end()
            self._console.say(f"  {handoff_line(run) or f'pipeline {run.pipeline}, {run.reason}'}", "dim")
        return run, await self._bulk_bytes() - before

    async def _alone(self, messages: Messages, tokens: int) -> ChatRun:
        return await stream_chat(self._url, self._body(messages, tokens), override="single")

    def _body(self, messages: Messages, tokens: int) -> dict[str, Any]:
        return {
            "model": self._model,
            "messages": messages,
            "max_tokens": tokens,
            "temperature": 0,
            "ignore_eos": True,
        }


def token_counter(tokenizer: str) -> Callable[[Messages], int]:
    """Counts the tokens of a chat prompt as the router will."""
    from pdd.engine.tokenizers import load_tokenizer

    loaded = load_tokenizer(tokenizer)
    return lambda messages: len(loaded.apply_chat_template(messages))


def report(spec: LocalSpec, options: DemoOptions, console: Console, results: DemoResults, seconds: float) -> bool:
    """Print table or document and what was not met; whether all was."""
    link = spec.link.spec
    line = LineFacts(link.line.capacity_mbps, link.line.rtt_ms, link.streams)
    relayed, naive, after = results.relayed, results.naive, results.follow_up
    others = [m for m in (naive, after) if m is not None]
    unmet = unmet_promises(relayed, others, options.second_token_limit_ms)
    if options.as_json:
        console.result(json.dumps(demo_document(line, relayed, naive, after, unmet=unmet, seconds=seconds), indent=2))
    else:
        console.say()
        console.result(demo_table(relayed, naive, after))
    for sentence in unmet:
        console.say(f"not met: {sentence}", "red", "bold")
    if not options.as_json:
        console.say(f"\ndone in {seconds:.0f} s")
    return not unmet
