"""Replacement strings of the user's redact function, also where the function fails."""

import logging

import pytest

from kinetoscope.formats.redactor import Redactor


def test_each_string_is_replaced_once_until_the_window_is_over():
    strings = []
    redactor = Redactor(lambda text: strings.append(text) or text.upper())
    assert [redactor("a"), redactor("a"), redactor("b")] == ["A", "A", "B"]
    assert strings == ["a", "b"]
    redactor.clear()
    assert redactor("a") == "A"
    assert strings == ["a", "b", "a"]


def test_string_that_fails_redaction_is_written_as_redacted_and_logged_once(caplog):
    def fail(text):
        raise ValueError(f"no {text}")

    kept = []
    redactor = Redactor(fail, kept.append)
    assert [redactor("my secret"), redactor("another secret")] == ["redacted", "redacted"]
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "redact failed with ValueError in " in record.message
    assert "secret" not in record.message
    assert len(kept) == 2


@pytest.mark.parametrize("answer", [None, b"bytes", 7])
def test_undecodable_bytes_are_never_written(answer, caplog):
    assert Redactor(lambda text: answer)("my secret") == "redacted"
    assert "redact failed with TypeError. Each string" in caplog.text


def test_an_empty_string_is_not_replaced():
    assert Redactor(lambda text: 1 / 0)("") == ""
