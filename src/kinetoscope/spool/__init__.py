"""live: the folder where a process keeps what it has not saved yet.

Its 32-byte records (`record`), the files of records (`chunk`), filled ones (`spooled_window`), everything in a folder
(`contents`), where a run's folders are and whose (`folders`), whether the owner lives (`owner_lock`), which windows
are saved (`window_log`), and this process's own folder (`own_folder`).
"""
