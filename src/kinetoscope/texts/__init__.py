"""texts: what people read, and what they must not. Standard library only, but for HTML.

`wording` puts numbers and names into words, `templates` fills in HTML, `once_log` logs a message once, and `redactor`
asks the user's function what may be written.
"""
