"""The tabular benchmark: learning algorithms in the windows of a table, scored on families of networks held out.

`python -m benchmarks.learning.algorithms` trains them. `rows` is the results file, `scores` and `intervals` make
numbers with intervals of it, `report` and `curves` write and draw them.
"""
