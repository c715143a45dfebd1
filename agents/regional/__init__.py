"""Search by regions: rewrites are tried in small cuts of the model, and the best ones are put together."""
