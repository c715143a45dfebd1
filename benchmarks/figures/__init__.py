"""Tables and plots of a results file of `benchmarks.results`: `python -m benchmarks.figures FILE`.

`rows` reads the file, `intervals` condenses rows into numbers with intervals, `tables` and `page` write markdown,
`bars`, `lines` and `maps` draw, and `quotes` keeps what README and docs copy equal to what was made.
"""
