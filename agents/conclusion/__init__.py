"""The end of every search: confirm the winner, save and check its file, and record what it is made of."""
