"""texts: what people read, and what they must not. Standard library only.

`wording` puts numbers and names into words, `once_log` logs a message once, and `redactor` asks the user's function
what may be written.
"""
