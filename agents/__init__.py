"""Agents: search methods that choose substitutions, learned or not, on the same problems and meters.

An agent of one's own needs the names below: it keeps its account in a `Search`, records what it applies by `action_of`,
and ends with `conclude`.
"""

from agents.conclusion.conclude import conclude
from agents.core.base import Action, Agent, Budget, OptimizationResult, Search, action_of
from agents.core.records import Improvement
from agents.core.registry import agent_names, make_agent

__all__ = [
    "Action",
    "Agent",
    "Budget",
    "Improvement",
    "OptimizationResult",
    "Search",
    "action_of",
    "agent_names",
    "conclude",
    "make_agent",
]
