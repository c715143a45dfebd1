"""Agents: search methods that choose substitutions, learned or not, on the same problems and meters."""

from agents.base import Action, Agent, Budget, OptimizationResult, Search, make_agent

__all__ = ["Action", "Agent", "Budget", "OptimizationResult", "Search", "make_agent"]
