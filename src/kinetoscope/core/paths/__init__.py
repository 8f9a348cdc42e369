"""paths: where files are and whose, and how they are opened. Standard library only.

`run_folder` opens files of a run, and nothing outside of its folder, for all readers of traces; `regular_file` opens
no named pipes and devices. `attempt_folders` knows where each attempt of a restarted run has its traces, `remote_url`
the URLs of object stores. `short_paths` writes paths without homes, and `source_files` knows which code is the
user's, and `user_cache` where the user's cache is. `atomic_file` writes complete files. `cgroups` and
`available_memory` read limits of this process.
"""
