"""The interface of every agent: budget, search bookkeeping and result; agents by name; configuration."""
