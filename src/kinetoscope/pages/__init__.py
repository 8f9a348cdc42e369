"""pages: self-contained web pages: those that ``web/`` built (``page.html``, ``runs.html``), and their data.

`page_data` and `run_list` have the data of each page; `html_file` joins page and data in one file.
"""
