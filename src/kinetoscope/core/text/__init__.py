"""text: what people read. Standard library only, but for HTML.

`wording` formats numbers and names, `templates` fills in HTML, and `once_log` logs a message once.
"""
