"""server: the pages of ``kinetoscope view`` for browsers on this machine.

`run_search` finds the runs in a folder, `run_lists` builds the data of their pages, `site` maps addresses to responses,
`plain_pages` has pages without JavaScript (with ``page.css``). Background processes, one at a time (`job_queue`),
compute missing rows (`row_filler`) and write reports (`report_builder`). `access`, `connections` and `server` admit
browsers that have the link, up to a limit.
"""
