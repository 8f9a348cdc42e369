"""Windows of a rank: spans classified by names, intervals, and columns."""
