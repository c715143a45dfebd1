"""Bodies of functions and of decided branches, put in place of the nodes that call or hold them."""
