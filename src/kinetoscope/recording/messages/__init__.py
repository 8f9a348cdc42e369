"""Messages of a run for people.

`console` writes to terminals and notebooks, `saving_progress` and `end_report` at the end; `standard_error` writes a
line that leaves nothing in a buffer.
"""
