"""formats: one file per file format, reader and writer side by side.

`chrome` and `perfetto` have traces, `journal` lists that a process appends to, such as the `manifest`, and
`struct_json` our small files. `parquet` limits what such a file unpacks to, and `header` the numbers in headers. Chrome
JSON also has `chrome_stream` (the lenient reader, piece by piece), `chrome_event` (one event, also a damaged one) and
`chrome_scan` (a trace as columns). `nesting` and `track_ids` make a trace valid. `viewers` has the rules of viewers,
`device_events` the categories of work on a device, and `trace_names` the names of our spans, samples and notes.

Redaction: `field_owners` lists the fields and their owners. `trace_redaction` replaces strings by the user's function,
and `anonymizer` by the owners, with `known_names`, `torch_names` and `sentence_redaction`.
"""
