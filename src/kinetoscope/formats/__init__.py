"""formats: one file per file format, reader and writer side by side.

`chrome`, `perfetto`, `manifest`, `own_json` for our own small files, `parquet`, which knows what such a file unpacks
to, and `header`, which numbers headers may have. Chrome JSON also has `chrome_stream` (the lenient reader, piece by
piece), `chrome_event` (one event, also a damaged one) and `chrome_scan` (a trace as columns). `nesting` and
`track_ids` make a trace valid, `trace_redaction` replaces all its texts; `viewers` knows what viewers do not show,
`device_events` which categories are work of a device, `own_names` what our spans, samples and notes are called.
"""
