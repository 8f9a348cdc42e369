"""Run folders as somebody who wishes us ill would send them, made by chance from a seed; a visit of all commands."""
