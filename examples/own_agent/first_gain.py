"""An agent on a page: take the first candidate that makes the model faster, as long as there is one."""

from agents import Search, action_of, conclude


class FirstGainAgent:
    name = "first-gain"

    def __init__(self, gain=0.005):
        self.gain = gain  # what a rewrite must gain to be taken

    def optimize(self, problem, budget, *, seed=0, progress=None):
        search = Search(problem, budget, progress)  # counts what is spent, remembers what was measured
        graph, actions = problem.model.graph, ()
        best = search.measure(graph, actions).speedup
        improved = True
        while improved:
            improved = False
            for candidate in problem.rewriter.candidates(graph):
                if search.exhausted:
                    return conclude(search, self.name)
                after = search.apply(candidate)
                if after is None:  # the rewrite gives no valid graph
                    continue
                path = (*actions, action_of(candidate))
                speedup = search.measure(after, path).speedup
                if speedup > best * (1 + self.gain):
                    graph, actions, best, improved = after, path, speedup, True
                    break
        return conclude(search, self.name)  # measures the best with care, and checks its outputs
