"""The discrete-event simulator. It imports numba, so import it only where a run is wanted.

    from pdd.planner.sim import SimOptions, simulate
    result = simulate(fleet, load, SimOptions(closed_loop=True))
    result.ttft[0.99]        # Estimate(value, low, high) in seconds, or None with the reason in result.notes
"""

from pdd.planner.sim.percentiles import Estimate
from pdd.planner.sim.result import Columns, SimResult, trace_request
from pdd.planner.sim.run import SimOptions, simulate

__all__ = ["Columns", "Estimate", "SimOptions", "SimResult", "simulate", "trace_request"]
