"""Optimal extraction as an integer program, solved by HiGHS.

Yang et al. (TENSAT), MLSys'21, section 5.1: a variable per e-node, one member of every root class, and a member of
every operand's class where an e-node is chosen. Added here: at most one member per class; operand constraints per
class and operand instead of per e-node, which is tighter; topological order variables, only for classes that can lie
on a cycle; the best heuristic solution to start from; and what cannot be in any optimal solution is left out first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np

from graph_rewrite.egraph.extract.costed import CostedEGraph, components
from graph_rewrite.egraph.extract.tree import TreeCosts, tree_costs

_PROVEN = 1e-7
"""A relative gap below this counts as closed: HiGHS works in double precision."""


@dataclass(frozen=True, slots=True)
class Solved:
    """The best choice found, and the proven relative gap to the optimum."""

    choice: dict[int, int]
    gap: float


def ilp_choice(graph: CostedEGraph, tree: TreeCosts, start: Mapping[int, int], time_limit: float) -> Solved:
    """The optimal choice, or the best within the time limit (seconds); never worse than `start`."""
    start = graph.restricted(start)
    program = _Program(graph, tree, start)
    if not program.nodes:
        return Solved(dict(start), 0.0)
    found, bound = program.solve(time_limit) if time_limit > 0 else (None, 0.0)
    longest = tree_costs(graph, max)
    bound = max(bound, *(longest.costs[root] for root in graph.roots))
    best, cost = dict(start), graph.dag_cost(start)
    if found is not None and graph.cycle(found) is None:
        found = graph.restricted(found)
        if graph.dag_cost(found) < cost:
            best, cost = found, graph.dag_cost(found)
    gap = 0.0 if cost <= bound else (cost - bound) / cost
    return Solved(best, 0.0 if gap < _PROVEN else gap)


class _Program:
    """The e-nodes that can matter, the columns and the rows."""

    def __init__(self, graph: CostedEGraph, tree: TreeCosts, start: Mapping[int, int]) -> None:
        self.graph, self._tree, self._start = graph, tree, start
        self._free = self._free_classes()
        self.members = self._pruned()
        self.nodes = [node for members in self.members.values() for node in members]
        self._column = {node: i for i, node in enumerate(self.nodes)}
        self._component = components(graph, self.members)
        self._scale = max((graph.costs[node] for node in self.nodes), default=1.0) or 1.0

    def _free_classes(self) -> set[int]:
        """Classes with a member that costs nothing, all of whose operands are such classes: choosing it never hurts."""
        return {cls for cls in self._tree.order if self._tree.costs[cls] == 0.0}

    def _pruned(self) -> dict[int, list[int]]:
        """Per class that the roots may need its e-nodes, without those that another one makes superfluous."""
        members: dict[int, list[int]] = {}
        stack = [root for root in dict.fromkeys(self.graph.roots) if root not in self._free]
        seen = set(stack)
        while stack:
            cls = stack.pop()
            members[cls] = self._undominated(cls)
            for node in members[cls]:
                for child in self._kids(node):
                    if child not in seen:
                        seen.add(child)
                        stack.append(child)
        return members

    def _kids(self, node: int) -> frozenset[int]:
        return frozenset(self.graph.children[node]) - self._free

    def _undominated(self, cls: int) -> list[int]:
        costs, kept = self.graph.costs, list[tuple[int, frozenset[int]]]()
        nodes = [n for n in self.graph.classes[cls] if all(self._tree.choice[c] >= 0 for c in self.graph.children[n])]
        for node in sorted(nodes, key=lambda n: (costs[n], len(self._kids(n)), n != self._start.get(cls))):
            kids = self._kids(node)
            if cls not in kids and not any(other <= kids for _, other in kept):
                kept.append((node, kids))
        return [node for node, _ in kept]

    def solve(self, time_limit: float) -> tuple[dict[int, int] | None, float]:
        """The best choice that HiGHS found and its lower bound on the cost."""
        solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
        for option, value in (
            ("output_flag", False), ("time_limit", float(max(time_limit, 0.01))), ("mip_rel_gap", 0.0),
            ("mip_abs_gap", 1e-9), ("threads", 1), ("random_seed", 0), ("mip_feasibility_tolerance", 1e-9),
        ):  # fmt: skip
            solver.setOptionValue(option, value)
        solver.passModel(self._model())
        self._warm_start(solver)
        solver.run()
        info = solver.getInfo()
        bound = info.mip_dual_bound * self._scale if math.isfinite(info.mip_dual_bound) else 0.0
        if solver.getModelStatus() == highspy.HighsModelStatus.kOptimal:
            bound = max(bound, info.objective_function_value * self._scale)
        values = np.asarray(solver.getSolution().col_value)
        if len(values) < len(self.nodes) or info.primal_solution_status != 2:
            return None, bound
        choice = self._tree.chosen()
        for cls, members in self.members.items():
            best = max(members, key=lambda node: values[self._column[node]])
            if values[self._column[best]] > 0.5:
                choice[cls] = best
        return choice, bound

    def _order_classes(self) -> dict[int, int]:
        """Columns of the order variables, for classes that can lie on a cycle."""
        sizes: dict[int, int] = {}
        for cls in self.members:
            sizes[self._component[cls]] = sizes.get(self._component[cls], 0) + 1
        ordered = [cls for cls in self.members if sizes[self._component[cls]] > 1]
        self._sizes = sizes
        return {cls: len(self.nodes) + i for i, cls in enumerate(ordered)}

    def _rows(self, order: dict[int, int]) -> list[tuple[dict[int, float], float, float]]:
        """(coefficient per column, lower, upper) of each row."""
        column, rows = self._column, list[tuple[dict[int, float], float, float]]()
        roots, infinity = set(self.graph.roots), highspy.kHighsInf
        for cls, members in self.members.items():
            rows.append(({column[node]: 1.0 for node in members}, 1.0 if cls in roots else 0.0, 1.0))
            readers: dict[int, list[int]] = {}
            for node in members:
                for child in self._kids(node):
                    readers.setdefault(child, []).append(node)
            for child, nodes in readers.items():
                if child not in roots:
                    row = {column[node]: 1.0 for node in self.members[child]}
                    row.update((column[node], -1.0) for node in nodes)
                    rows.append((row, 0.0, infinity))
                if cls in order and self._component[cls] == self._component[child]:
                    size = float(self._sizes[self._component[cls]])
                    ordering = {order[cls]: 1.0, order[child]: -1.0}
                    ordering.update((column[node], -size) for node in nodes)
                    rows.append((ordering, 1.0 - size, infinity))
        return rows

    def _model(self) -> Any:
        self._order = order = self._order_classes()
        rows = self._rows(order)
        count = len(self.nodes) + len(order)
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = count, len(rows)
        costs = [self.graph.costs[node] / self._scale for node in self.nodes]
        lp.col_cost_ = np.array([*costs, *(0.0 for _ in order)])
        lp.col_lower_ = np.zeros(count)
        bounds = [float(self._sizes[self._component[cls]] - 1) for cls in order]
        lp.col_upper_ = np.array([*(1.0 for _ in self.nodes), *bounds])
        lp.row_lower_ = np.array([low for _, low, _ in rows])
        lp.row_upper_ = np.array([high for _, _, high in rows])
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        starts = np.cumsum([0, *(len(row) for row, _, _ in rows)])
        lp.a_matrix_.start_ = starts.astype(np.int32)
        lp.a_matrix_.index_ = np.array([i for row, _, _ in rows for i in row], dtype=np.int32)
        lp.a_matrix_.value_ = np.array([v for row, _, _ in rows for v in row.values()])
        lp.integrality_ = [highspy.HighsVarType.kInteger] * len(self.nodes) + [highspy.HighsVarType.kContinuous] * len(
            order
        )
        return lp

    def _warm_start(self, solver: Any) -> None:
        """Hand over the heuristic solution: chosen members, and the depth of each class in it."""
        values = np.zeros(len(self.nodes) + len(self._order))
        for cls, node in self._start.items():
            if cls not in self.members:
                continue
            if node not in self._column:
                node = next((n for n in self.members[cls] if self._kids(n) <= self._kids(node)), -1)
            if node < 0:
                return
            values[self._column[node]] = 1.0
        for cls, depth in self._depths().items():
            values[self._order[cls]] = depth
        solution = highspy.HighsSolution()
        solution.col_value = list(values)
        solver.setSolution(solution)

    def _depths(self) -> dict[int, int]:
        """Longest way down inside the component, per ordered class of the starting solution."""
        depths: dict[int, int] = {}
        stack = [cls for cls in self._start if cls in self._order]
        while stack:
            cls = stack[-1]
            inside = [c for c in self._kids(self._start[cls]) if c in self._order and c in self._start
                      and self._component[c] == self._component[cls]]  # fmt: skip
            missing = [c for c in inside if c not in depths]
            if missing and cls not in depths:
                stack.extend(missing)
                continue
            stack.pop()
            depths.setdefault(cls, 1 + max((depths[c] for c in inside), default=-1))
        return depths
