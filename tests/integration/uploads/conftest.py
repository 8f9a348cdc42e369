"""A real S3 API for the tests of this folder."""

import pytest

from support.object_store.s3 import FaultyProxy, S3Server


@pytest.fixture(scope="session")
def s3():
    server = S3Server()
    yield server
    server.close()


@pytest.fixture
def proxy(s3):
    proxy = FaultyProxy(s3.port)
    yield proxy
    proxy.close()
