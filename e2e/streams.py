"""Several streams in flight at once, and what must hold of each when it has ended, whatever broke meanwhile."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from e2e.client import Answer, Client, Progress
from e2e.shell import CommandFailed
from pdd.engine.tokenizer import ByteTokenizer

Request = dict[str, Any]
PRODUCERS = ("P", "RLD", "MD")


def build_requests(salt: str, count: int, prompt_tokens: int, max_tokens: int) -> list[Request]:
    """Requests with distinct prompts of printable bytes; every second one samples, with a seed of its own."""
    requests = []
    for index in range(count):
        rng = random.Random(f"{salt}/{index}")
        request: Request = {
            "prompt": [rng.randrange(32, 127) for _ in range(prompt_tokens)],
            "max_tokens": max_tokens,
            "temperature": 0,
            "ignore_eos": True,
        }
        if index % 2:
            request |= {"temperature": 0.8, "top_p": 0.95, "seed": rng.randrange(1 << 31)}
        requests.append(request)
    return requests


def build_body(request: Mapping[str, Any], model: str) -> Request:
    """The body for the router's /v1/completions."""
    usage = {"stream_options": {"include_usage": True}}
    return {"model": model, "return_token_ids": True, **usage, **request}


@dataclass(frozen=True, slots=True)
class Flight:
    """Streams that run in threads of their own, in the order of the requests."""

    progress: Sequence[Progress]
    answers: Sequence[Future[Answer]] = field(repr=False)

    def wait_each(self, what: str, reached: Callable[[Progress], bool], timeout_s: float) -> None:
        """Waits until every stream has got so far. Raises CommandFailed for the first that has not."""
        for index, one in enumerate(self.progress):
            if not one.wait(reached, timeout_s):
                state = "over" if one.over else "waiting"
                raise CommandFailed(
                    f"stream {index}: {what}: not reached; {state}, {len(one.ids)} tokens, {Counter(one.producers)}"
                )

    def finish(self, timeout_s: float) -> list[Answer]:
        """The answers of all. Raises what a stream raised, or TimeoutError."""
        return [answer.result(timeout_s) for answer in self.answers]


@contextmanager
def in_flight(client: Client, bodies: Sequence[Request], override: str = "") -> Iterator[Flight]:
    """Sends all at once; at the end of the block the threads are waited for."""
    with ThreadPoolExecutor(len(bodies)) as pool:
        progress = [Progress() for _ in bodies]
        answers = [
            pool.submit(client.stream, "/v1/completions", body, override, seen)
            for body, seen in zip(bodies, progress, strict=True)
        ]
        yield Flight(progress, answers)


def has_tokens(count: int, last: str = "") -> Callable[[Progress], bool]:
    """The stream has `count` tokens, and its newest is of producer `last`, if given."""
    return lambda seen: len(seen.ids) >= count and (not last or seen.producers[-1] == last)


def check_answer(answer: Answer, expected: Sequence[int], where: str = "") -> None:
    """Everything that a finished request promises: complete, once, the ids of one engine, and a trace that agrees."""
    assert answer.status == 200, f"{where}: {answer.status} {answer.text[:300]}"
    assert list(answer.ids) == list(expected), f"{where}: {describe_difference(answer.ids, expected)}"
    assert answer.finish_reason == "length", f"{where}: finish_reason {answer.finish_reason!r}"
    assert answer.text == ByteTokenizer().decode(expected), f"{where}: the text is not that of the ids"
    trace = answer.trace
    assert list(trace["token_ids"]) == list(expected), f"{where}: the trace has other ids"
    assert trace["output_tokens"] == len(expected), f"{where}: {trace['output_tokens']} output tokens in the trace"
    assert sum(trace["producers"].values()) == len(expected), f"{where}: producers {trace['producers']}"
    assert sum(count for _, count in trace["runs"]) == len(expected), f"{where}: runs {trace['runs']}"
    if answer.producers:
        counted = Counter(answer.producers)
        told = {name: count for name, count in trace["producers"].items() if count}
        assert dict(counted) == told, f"{where}: the chunks came from {counted}, the trace says {told}"
    if answer.usage:
        assert answer.usage["completion_tokens"] == len(expected), f"{where}: usage {answer.usage}"


def describe_difference(got: Sequence[int], expected: Sequence[int]) -> str:
    """The first position where two token sequences differ, and their lengths."""
    same = next(
        (i for i, (a, b) in enumerate(zip(got, expected, strict=False)) if a != b), min(len(got), len(expected))
    )
    return (
        f"{len(got)} ids, {len(expected)} expected; equal up to {same}: "
        f"{list(got[same : same + 5])} instead of {list(expected[same : same + 5])}"
    )
