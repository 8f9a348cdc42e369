"""The judgement of the kit's results, on a machine with polars: verdicts as data, and the page made of them."""
