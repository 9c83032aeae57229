"""How a step runs: engines, CUDA graphs, compilation, precision, memory format."""

from driftlaw.execution.executor import Executor
from driftlaw.execution.plan import Plan
from driftlaw.execution.settings import ExecutionSettings
from driftlaw.execution.two_pass import TwoPassResult, two_pass

__all__ = ["ExecutionSettings", "Executor", "Plan", "TwoPassResult", "two_pass"]
