"""Learning algorithms on tables of windows, the benchmark environment `rewritegym/WindowTable-v0`.

`game` plays many windows of a table at once, `splits` holds families of networks out, `states` and `policy` are the
policy network over a table's states, and `run` is what an algorithm is given. `untrained`, `reinforce`, `cloning`,
`expert_iteration` and `ppo` are the algorithms, `algorithms` has their names. The scores of all of them are made by
`python -m benchmarks.learning.algorithms`. All modules but `game`, `splits` and `untrained` need PyTorch.
"""
