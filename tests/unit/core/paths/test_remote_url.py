"""URLs of object stores: what cannot work is refused when the profiler is made, not when the first trace is done."""

import pytest

from kinetoscope.core.paths.remote_url import check_url, parse_url
from kinetoscope.errors import SettingsError


@pytest.mark.parametrize("url", ["s3://bucket/runs", "file:///mnt/runs", "memory://runs", "s3://bucket/a@b:c"])
def test_a_url_that_an_installed_library_supports_is_accepted(url):
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


@pytest.mark.parametrize(
    "url",
    [
        "simplecache::s3://bucket/runs",
        "s3://bucket/runs::file:///etc",
        "s3://bucket/runs/../other",
        "s3://bucket/runs/%2e%2e/other",
        "s3://bucket/runs?versionId=1",
        "webhdfs://host/runs?user.name=root",
        "https://host@evil/runs",
        "https://host\\@evil/runs",
        "s3://bucket/ru\nns",
        "s3://bucket/\x1b[2J",
        "file://host/runs",
        "file://~/runs",
        "file://",
        "bucket/runs",
        "://runs",
        "s 3://bucket",
        "",
    ],
)
def test_url_with_query_or_credentials_is_refused(url):
    with pytest.raises(SettingsError, match="--to="):
        parse_url(url, "--to")


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("s3://bucket/runs", "s3://bucket/runs"),
        ("s3://bucket/runs/mine/a.json", "s3://bucket/runs"),
        ("S3://bucket//runs/./a.json", "s3://bucket/runs/"),
        ("s3://bucket/a", "s3://bucket"),
        ("file:///mnt/runs/a", "file:///mnt"),
        ("abfs://container@account.dfs.core.windows.net/a", "abfs://container@account.dfs.core.windows.net"),
        ("s3://bucket/spaces and @: and +", "s3://bucket"),
    ],
)
def test_url_is_below_another_by_scheme_host_and_path(url, place):
    assert parse_url(url, "url").is_below(parse_url(place, "--to"))


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("s3://bucket/runs2/a", "s3://bucket/runs"),
        ("s3://bucket2/runs/a", "s3://bucket/runs"),
        ("gs://bucket/runs/a", "s3://bucket/runs"),
        ("s3://bucket", "s3://bucket/runs"),
        ("s3://Bucket/runs/a", "s3://bucket/runs"),
        ("file:///mnt/run", "file:///mnt/runs"),
        ("memory://evil/runs", "memory://host/runs"),
    ],
)
def test_url_with_only_an_equal_prefix_is_not_below(url, place):
    assert not parse_url(url, "url").is_below(parse_url(place, "--to"))
