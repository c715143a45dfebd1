"""The beginning of a search by windows: known graphs fitted to the machine, refusals, and drafts."""
