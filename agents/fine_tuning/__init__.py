"""Fine-tuning: the universal policy learns from what was timed on this machine, on one model or on many."""
