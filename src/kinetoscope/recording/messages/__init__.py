"""messages: what a run prints. `console` writes to terminals and notebooks, `saving_line` and `end_report` at the end;
`standard_error` keeps the log unbuffered.
"""
