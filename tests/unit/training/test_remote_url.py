"""URLs of object stores: what cannot work is refused when the profiler is made, not when the first trace is done."""

import pytest

from kinetoscope.errors import SettingsError
from kinetoscope.training.remote_url import check_url


@pytest.mark.parametrize("url", ["s3://bucket/runs", "file:///mnt/runs", "memory://runs", "s3://bucket/a@b:c"])
def test_a_url_that_a_library_here_knows_is_taken(url):
    check_url(url, "upload_to")


@pytest.mark.parametrize(
    "url",
    [
        "sftp://me:hunter22@host/runs",
        "s3://AKIAXXXX:hunter22@bucket/runs",
        "az://container/runs?sv=1&sig=hunter22",
        "https://host/runs?X-Amz-Signature=hunter22",
    ],
)
def test_credentials_in_a_url_are_refused_without_being_repeated(url):
    with pytest.raises(SettingsError, match="upload_to holds credentials") as caught:
        check_url(url, "upload_to")
    assert "hunter22" not in str(caught.value)


def test_a_missing_library_is_an_error_that_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "gcsfs" else object())
    with pytest.raises(SettingsError, match=r"pip install 'kinetoscope\[gcs\]'"):
        check_url("gs://bucket/runs", "upload_to")
