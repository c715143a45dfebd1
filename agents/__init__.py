"""Agents: search methods that choose substitutions, learned or not, on the same problems and meters."""

from agents.core.base import Action, Agent, Budget, Improvement, OptimizationResult, Search
from agents.core.registry import agent_names, make_agent

__all__ = [
    "Action",
    "Agent",
    "Budget",
    "Improvement",
    "OptimizationResult",
    "Search",
    "agent_names",
    "make_agent",
]
