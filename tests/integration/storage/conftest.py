"""A real S3 API for the tests of this folder."""

import pytest


@pytest.fixture(scope="session")
def s3(tmp_path_factory):
    pytest.importorskip("s3fs")
    pytest.importorskip("moto")
    from object_store.s3 import S3Server

    server = S3Server(tmp_path_factory.mktemp("s3"))
    yield server
    server.close()


@pytest.fixture
def proxy(s3):
    from object_store.s3 import FaultyProxy

    proxy = FaultyProxy(s3.port)
    yield proxy
    proxy.close()
