"""Lines are left out of stderr, and not a byte of the others."""

import re
import subprocess
import sys

PROGRAM = """
import os, re, sys
from kinetoscope.writing.standard_error import lines_left_out
def write(text):
    os.write(2, text)
print("before", file=sys.stderr)
try:
    with lines_left_out(re.compile(b"NOISE")):
        write(b"NOISE 1\\n\\xff odd\\nNOISE 2\\n")
        print("of the user", file=sys.stderr)
        write(b"no NOISE at its begin\\nunfinished")
        raise ValueError
except ValueError:
    write(b" line\\n")
with lines_left_out(re.compile(b"NOISE")):
    write(b"NOISE without an end")
write(b"after\\n")
if sys.argv[1:]:
    os.close(2)
    with lines_left_out(re.compile(b"NOISE")):
        os.write(1, b"went on")
"""


def run(*arguments):
    return subprocess.run([sys.executable, "-c", PROGRAM, *arguments], capture_output=True, check=True)


def test_only_whole_lines_that_match_are_left_out():
    errors = run().stderr
    assert errors == b"before\n\xff odd\nof the user\nno NOISE at its begin\nunfinished line\nafter\n"
    assert not re.search(b"^NOISE", errors, re.MULTILINE)


def test_a_process_without_stderr_goes_on():
    assert run("closed").stdout == b"went on"
