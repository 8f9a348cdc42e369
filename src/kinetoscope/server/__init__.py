"""serving: what ``kinetoscope view`` serves to browsers on this machine.

`runs` finds the runs in a folder, `run_lists` says what is known of them, `site` knows what is at which address,
`plain_pages` has what needs no script (with ``page.css``). Processes beside the server, one at a time (`job_queue`),
work out what is not known (`row_filler`) and make reports (`made_pages`). `access`, `connections` and `server` let only
browsers in that were given the link, and not too many at once.
"""
