"""Sizing and simulation of PDD as a library: what to buy, how many of each, how wide a line.

    from pathlib import Path
    from pdd.planner import plan_file

    answer = plan_file(Path("docs/examples/plan-standard.yaml"))
    print(answer.feasible, answer.search.best.label, answer.search.best.bcr)

Names are loaded when they are first used: importing this package costs nothing (no numba, no catalogue). Units
throughout: seconds, bytes, tokens, bits per second, requests per second, money per hour. Each name's docstring gives
units and sources; docs/planner.md, "Library", shows them together.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pdd.planner.analytic import Prediction as Prediction
    from pdd.planner.analytic import predict as predict
    from pdd.planner.answer import Answer as Answer
    from pdd.planner.answer import make_answer as make_answer
    from pdd.planner.answer import plan_file as plan_file
    from pdd.planner.answer import to_json as to_json
    from pdd.planner.catalogue import get_chip as get_chip
    from pdd.planner.catalogue import get_model as get_model
    from pdd.planner.fleet import Fleet as Fleet
    from pdd.planner.fleet import LineSpec as LineSpec
    from pdd.planner.fleet import Pool as Pool
    from pdd.planner.fleet import RuleSpec as RuleSpec
    from pdd.planner.fleet import Sla as Sla
    from pdd.planner.fleet import Way as Way
    from pdd.planner.kvlaw import KVLaw as KVLaw
    from pdd.planner.kvlaw import payload_bytes as payload_bytes
    from pdd.planner.load import Load as Load
    from pdd.planner.render import render_yaml as render_yaml
    from pdd.planner.roofline import estimate_times as estimate_times
    from pdd.planner.sim import SimOptions as SimOptions
    from pdd.planner.sim import SimResult as SimResult
    from pdd.planner.sim import simulate as simulate
    from pdd.planner.spec import PlanSpec as PlanSpec
    from pdd.planner.spec_file import read_plan_text as read_plan_text
    from pdd.planner.stats import WorkloadStats as WorkloadStats
    from pdd.planner.stats import summarize as summarize
    from pdd.planner.timing import EngineTimes as EngineTimes
    from pdd.planner.traces import read_trace as read_trace
    from pdd.planner.traces import trace_stats as trace_stats
    from pdd.planner.workload import Workload as Workload
    from pdd.planner.workload import generate as generate

_HOMES = {
    "analytic": ("Prediction", "predict"),
    "answer": ("Answer", "make_answer", "plan_file", "to_json"),
    "catalogue": ("get_chip", "get_model"),
    "fleet": ("Fleet", "LineSpec", "Pool", "RuleSpec", "Sla", "Way"),
    "kvlaw": ("KVLaw", "payload_bytes"),
    "load": ("Load",),
    "render": ("render_yaml",),
    "roofline": ("estimate_times",),
    "sim": ("SimOptions", "SimResult", "simulate"),
    "spec": ("PlanSpec",),
    "spec_file": ("read_plan_text",),
    "stats": ("WorkloadStats", "summarize"),
    "timing": ("EngineTimes",),
    "traces": ("read_trace", "trace_stats"),
    "workload": ("Workload", "generate"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Loads the module that has the name (PEP 562)."""
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME_OF])
