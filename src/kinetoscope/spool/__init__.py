"""spool: the crash-safe buffer: the folder where a process keeps its unsaved data.

Its 32-byte records (`record`), the files of records (`chunk`), filled ones (`spooled_window`), everything in a folder
(`contents`), the folders of a run and their owners (`folders`), whether the owner lives (`owner_lock`), which windows
are saved (`window_log`), and this process's folder (`spool_folder`).
"""
