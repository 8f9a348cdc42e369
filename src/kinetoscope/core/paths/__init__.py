"""paths: locations and owners of files, and functions that open them. Standard library only.

`run_folder` opens files of a run, and nothing outside of its folder, for all readers of traces; `regular_file` opens
no named pipes and devices. `attempt_folders` finds the traces of each attempt of a restarted run, and `remote_url`
parses URLs of object stores. `short_paths` writes paths without homes, `source_files` distinguishes the user's code
from libraries, and `user_cache` finds the user's cache. `atomic_file` writes complete files. `cgroups`,
`available_cores` and `available_memory` read limits of this process.
"""
