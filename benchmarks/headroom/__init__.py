"""The distance of models from the machine's limit: `python -m benchmarks.headroom FILE`, with a results file.

`roofs` condenses a profile into what the roofline leaves of it, `models` profiles originals and results.
"""
