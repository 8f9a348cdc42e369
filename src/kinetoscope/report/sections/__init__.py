"""report, as a page: what the page shows is worked out here, section by section, and put into it by `pages`.

`thinning` says what is left out, `privacy` what is never told, and `page_redaction` what is not with ``--redact``.
"""
