"""Uploads to the APIs of Google's and Azure's stores, on emulators on loopback."""

import os
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from kinetoscope.uploads.upload_queue import add_upload, read_confirmed
from support.free_ports import free_port, wait_for

# Azurite's published account.
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_SIZES = (100, 300_000, 9 << 20)  # the last is uploaded in parts


@pytest.fixture
def serve():
    started = []

    def start(*command):
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        started.append(subprocess.Popen(command, **quiet))

    yield start
    for process in started:
        process.kill()
        process.wait()


def upload_three(tmp_path, base, environment):
    """Queues three files and uploads them in a process of its own; returns their contents, by URL."""
    run_folder, contents = tmp_path / "run", {}
    (run_folder / "traces").mkdir(parents=True)
    for number, size in enumerate(_SIZES):
        file, url = run_folder / "traces" / f"{number}.json", f"{base}/traces/{number}.json"
        contents[url] = os.urandom(size - 1) + b"."  # Google's emulator loses a \r at the end
        file.write_bytes(contents[url])
        add_upload(run_folder, 0, file, url)
    command = [sys.executable, "-m", "kinetoscope", "upload", str(run_folder), "--to", base, "--retry-for", "5"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert [upload.url for upload in read_confirmed(run_folder, 0)] == list(contents)
    return contents


def test_files_reach_google(tmp_path, serve):
    pytest.importorskip("gcp_storage_emulator")
    pytest.importorskip("gcsfs")
    port = free_port()
    program = str(Path(sys.executable).with_name("gcp-storage-emulator"))
    serve(program, "start", "--host=127.0.0.1", f"--port={port}", "--in-memory", "--default-bucket=runs")
    wait_for(port)
    emulator = f"http://127.0.0.1:{port}"
    contents = upload_three(tmp_path, "gs://runs", {**os.environ, "STORAGE_EMULATOR_HOST": emulator})
    assert {url: read_from(emulator, url) for url in contents} == contents


def read_from(emulator, url):
    with urllib.request.urlopen(url.replace("gs:/", emulator)) as answer:
        return answer.read()


@pytest.mark.skipif(shutil.which("azurite-blob") is None, reason="no emulator of Azure (npm install -g azurite)")
def test_files_reach_azure(tmp_path, serve):
    adlfs = pytest.importorskip("adlfs")
    port = free_port()
    serve("azurite-blob", "--silent", "--inMemoryPersistence", "--skipApiVersionCheck", "--blobPort", str(port))
    wait_for(port)
    account = f"DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey={_KEY}"
    connection = f"{account};BlobEndpoint=http://127.0.0.1:{port}/devstoreaccount1;"
    store = adlfs.AzureBlobFileSystem(connection_string=connection, skip_instance_cache=True)
    store.mkdir("runs")
    contents = upload_three(tmp_path, "az://runs", {**os.environ, "AZURE_STORAGE_CONNECTION_STRING": connection})
    assert {url: store.cat_file(url) for url in contents} == contents
