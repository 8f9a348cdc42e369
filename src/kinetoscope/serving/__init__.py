"""serving: shows the runs in a folder to a browser on this machine, for ``kinetoscope view``."""
