"""pages: self-contained web pages, and the few lines that put data into one."""
