"""pages: self-contained web pages. What ``web/`` built (``page.html``, ``runs.html``), what they can show (`page_data`,
`run_list`), and both as one file.
"""
