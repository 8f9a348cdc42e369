"""tests: a small run with Composer's real Trainer, and a look at the traces it leaves."""
