"""merge: many ranks and cycles into one trace, also during training in a process of low priority."""
