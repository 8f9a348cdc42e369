"""merge: many ranks and cycles into one trace. Safe beside training."""
