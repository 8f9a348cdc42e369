"""The live folder, where a process keeps what it has not saved yet: its files, and how it is made and deleted."""
