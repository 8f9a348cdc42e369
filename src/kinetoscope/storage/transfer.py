"""storage: one upload. A file flows into the store, which is asked afterwards whether it is really there."""

import base64
import hashlib
import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kinetoscope.errors import UploadError
from kinetoscope.formats.upload_queue import ConfirmedUpload, WaitingUpload
from kinetoscope.training.remote_url import check_url
from kinetoscope.training.run_folder import RunFolder
from kinetoscope.writing.atomic_file import atomic_file

# s3fs sends files from 100 MiB in parts of 50 MiB; then S3's ETag is the MD5 of the parts' MD5s.
_PART_BYTES = 50 << 20
_READ_BYTES = 1 << 20
_TIMEOUTS = {"connect_timeout": 10, "read_timeout": 60, "retries": {"max_attempts": 1}}
_WITH_FOLDERS = {"file", "local", "ftp", "sftp", "ssh", "hdfs", "webhdfs", "smb", "memory"}


@dataclass(frozen=True, slots=True)
class _Digest:
    """What a file holds, as stores name it."""

    size_bytes: int
    md5: str
    etag_of_parts: str


def transfer(upload: WaitingUpload, num_tries: int = 1, also: Collection[Path] = ()) -> ConfirmedUpload:
    """Uploads a file and confirms it: the store has as many bytes, with the same checksum.

    The file is in the run's folder or in one of ``also``. Raises `UnsafePathError` for one that is not, `UploadError`
    if the store holds something else afterwards or the file changed meanwhile, FileNotFoundError if it is gone,
    `SettingsError` for a URL that is none, and whatever the store's library raises.
    """
    check_url(upload.upload.url, "url")
    folder, name = upload.place(also)
    before = _identity(folder, name)
    digest = _digest(folder, name)
    store, path = _open_store(upload.upload.url)
    _put(store, folder.path / name, path)
    _confirm(store, path, digest)
    if _identity(folder, name) != before:
        raise UploadError(f"{folder.path / name} changed while it was uploaded.")
    return ConfirmedUpload(upload.upload.path, upload.upload.url, digest.size_bytes, digest.md5, num_tries)


def _identity(folder: RunFolder, name: str) -> tuple[int, int, int]:
    with folder.open(name) as stream:
        status = os.fstat(stream.fileno())
    return status.st_ino, status.st_mtime_ns, status.st_size


def _digest(folder: RunFolder, name: str) -> _Digest:
    whole, parts, part = hashlib.md5(usedforsecurity=False), [], hashlib.md5(usedforsecurity=False)
    size_bytes = 0
    with folder.open(name) as stream:
        while piece := stream.read(_READ_BYTES):
            whole.update(piece)
            part.update(piece)
            size_bytes += len(piece)
            if size_bytes % _PART_BYTES == 0:
                parts.append(part.digest())
                part = hashlib.md5(usedforsecurity=False)
    if size_bytes % _PART_BYTES:
        parts.append(part.digest())
    of_parts = hashlib.md5(b"".join(parts), usedforsecurity=False).hexdigest()
    return _Digest(size_bytes, whole.hexdigest(), f"{of_parts}-{len(parts)}")


def _open_store(url: str) -> tuple[Any, str]:
    """fsspec's file system for a URL, and the path in it."""
    import fsspec
    from fsspec.config import conf

    scheme = url.partition("://")[0]
    options: dict[str, Any] = {"use_listings_cache": False, "skip_instance_cache": True}
    if scheme in ("s3", "s3a"):
        theirs = conf.get("s3", {}).get("config_kwargs", {})
        options["config_kwargs"] = {**_TIMEOUTS, **theirs}
    return fsspec.url_to_fs(url, **options)


def _put(store: Any, file: Path, path: str) -> None:
    """Copies the file into the store, where it appears when it is complete."""
    protocols = {store.protocol} if isinstance(store.protocol, str) else set(store.protocol)
    if "file" in protocols:
        with atomic_file(Path(path)) as target, file.open("rb") as source:
            while piece := source.read(_READ_BYTES):
                target.write(piece)
        return
    if protocols & _WITH_FOLDERS:
        store.makedirs(os.path.dirname(path), exist_ok=True)
    store.put_file(str(file), path)


def _confirm(store: Any, path: str, digest: _Digest) -> None:
    store.invalidate_cache()
    try:
        info = store.info(path)
    except FileNotFoundError:
        raise UploadError("The store took the file, but does not have it.") from None
    if info.get("size") != digest.size_bytes:
        raise UploadError(f"The store has {info.get('size')} bytes of {digest.size_bytes}.")
    if _named_checksum(info) not in (digest.md5, digest.etag_of_parts) and _md5_in_store(store, path) != digest.md5:
        raise UploadError("The store has as many bytes, but not the same ones.")


def _named_checksum(info: dict[str, Any]) -> str:
    """The checksum that the store itself computed: S3's ETag, Google's md5Hash; Azure's is the client's word."""
    if md5 := info.get("md5Hash"):
        return base64.b64decode(md5).hex()
    return str(info.get("ETag") or "").strip('"')


def _md5_in_store(store: Any, path: str) -> str:
    """The checksum of what can be read back: for stores that name none, or (S3 with keys of its own) another one."""
    md5 = hashlib.md5(usedforsecurity=False)
    with store.open(path, "rb") as stream:
        while piece := stream.read(_READ_BYTES):
            md5.update(piece)
    return md5.hexdigest()
