"""Further models of the zoo, outside the set on which tables and recorded states are computed.

Each module holds one network, and ``configs`` their parameters. What all networks share lies in ``architectures``.
"""
