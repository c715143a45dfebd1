"""Reports of searches and training: run folders, progress, tables and plots."""
