"""merge: many ranks and cycles into one trace. Safe to run beside training."""
