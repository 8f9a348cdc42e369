"""What got slower or larger from one run to another."""
