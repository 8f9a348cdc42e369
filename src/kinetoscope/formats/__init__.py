"""formats: one file per file format, reader and writer side by side.

`chrome`, `perfetto`, `manifest`, `own_json` for our own small files, `parquet`, which knows what such a file unpacks
to, and `header`, which numbers headers may have. Chrome JSON also has `chrome_stream` (the lenient reader, piece by
piece), `chrome_event` (one event, also a damaged one) and `chrome_scan` (a trace as columns). `nesting` and
`track_ids` make a trace valid; `viewers` knows what viewers do not show,
`device_events` which categories are work of a device, `own_names` what our spans, samples and notes are called.

Redaction: `field_owners` lists the fields and their owners, `trace_redaction` replaces texts as the user's function
says, and `anonymizer` by the owners, with `known_names`, `torch_names` and `own_sentences`.
"""
