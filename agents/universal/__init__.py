"""The universal policy: trained on windows of many models, it chooses chains of rewrites in the windows of any.

`observations` is what it sees, `policy` the network, `decisions` what a table of windows teaches, `pretraining` and
`trainer` teach it, `rollouts` scores it on a table, and `prior` puts it to work in a search by windows. It plans: what
the steps before have saved it does not see, so that it can propose chains before anything is measured.
"""
