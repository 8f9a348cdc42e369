"""``python -m kinetoscope``: the same as the command ``kinetoscope``."""

from kinetoscope.cli import command

if __name__ == "__main__":
    command()
