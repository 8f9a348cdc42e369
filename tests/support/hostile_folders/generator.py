"""Makes a killed run's folder hostile: the content of its files, or the files themselves, lead outside."""

import contextlib
import gzip
import json
import os
import random
import shutil
import struct
from pathlib import Path

import polars

NUM_CHANGES = 10
STRANGE = "an-operator-that-is-in-no-trace"
HUGE = 1 << 40
_JSON = (".json", ".jsonl", ".names", ".aside")


class Outside:
    """The places beside the run's folder that must not be touched, and names that a hostile file may use for them."""

    def __init__(self, folder: Path, bucket: str) -> None:
        self.folder = folder
        self.names = [
            "../../outside/file",
            "../../../outside/folder",
            str(folder / "file"),
            str(folder / "folder"),
            str(folder),
            "..",
            "",
            ".",
            "/",
            "link",
            "link/file",
            "link/new/x.json",
            "{run_name}/../../../outside/{rank}.json",
            "a\0b",
            "\0",
            "a\x1b[2J\x07b\nc",
            "x" * 5000,
            "\ud800",
            "{rank:99999999999}",
            "{rank}{run_name.__class__}",
            "{",
            f"file://{folder}/new",
            f"s3://other-{bucket}/x.json",
            f"s3://{bucket}/elsewhere/x.json",
            f"s3://{bucket}/allowed/../elsewhere/x.json",
            f"s3://{bucket}/allowed/x?versionId=1",
            f"simplecache::s3://{bucket}/allowed/x.json",
            f"s3://{bucket}/allowed/x::file://{folder}/new",
            "https://host@evil.invalid/x",
            "gs://bucket/x",
        ]
        self.others = [-1, 0, 1, 10**9, 10**30, 1.5, -1e308, 1e308, True, None, [], {}, [[[]]], {"a": {"b": 1}}]

    def value(self, chance: random.Random) -> object:
        """Return a value that no valid file has."""
        return chance.choice(self.names if chance.random() < 0.6 else self.others)


def make_outside(folder: Path, killed: Path) -> None:
    """Make the places that must not be touched: files, and the spool folder of another killed run of this user."""
    (folder / "folder" / "below").mkdir(parents=True)
    (folder / "file").write_text("SECRET")
    (folder / "folder" / "file.json").write_text('{"traceEvents": [], "SECRET": 1}')
    (folder / "folder" / "below" / "file").write_text("SECRET")
    [live] = (killed / "live").iterdir()
    shutil.copytree(live, folder / "live")
    (folder / "live").chmod(0o700)
    document = json.loads((folder / "live" / "run.json").read_text())
    (folder / "live" / "run.json").write_text(json.dumps(document | {"token": "another"}))


def damage_run(run: Path, outside: Outside, seed: int) -> list[str]:
    """Change a run's folder, and return a description of the changes."""
    chance = random.Random(seed)
    (run / "link").symlink_to(outside.folder)
    changes = [_change_field, _change_field, _change_recipe, _add_entries, _replace, _replace, _add_name, _add_pointer]
    changes += [_change_parquet, _add_link, _add_cache]
    first = _write_outside(run, outside) if seed % 2 else "nothing"
    return [first, *(chance.choice(changes)(run, outside, chance) for _ in range(NUM_CHANGES))]


def _write_outside(run: Path, outside: Outside) -> str:
    """Change where a killed run says that its traces belong: to a folder outside, which is there."""
    [file] = run.glob("live/*/run.json")
    document = json.loads(file.read_text())
    document["recipes"][0]["folder"] = str(outside.folder / "folder")
    file.write_text(json.dumps(document))
    return f"recipe: folder={outside.folder / 'folder'}"


def _change_field(run: Path, outside: Outside, chance: random.Random) -> str:
    files = [path for path in sorted(run.rglob("*")) if path.name.endswith(_JSON) and _is_ordinary(path)]
    if not files:
        return "nothing"
    file = chance.choice(files)
    lines = _documents(file)
    place = chance.randrange(len(lines) or 1)
    if not lines or not isinstance(lines[place], dict):
        return f"{file.name} has nothing to change"
    where = _set_somewhere(lines[place], outside.value(chance), chance)
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return f"{file.relative_to(run)}, line {place}: {where}"


def _documents(file: Path) -> list[object]:
    """Return the JSON documents in a file: one, or one per line; none if it is damaged."""
    text = file.read_text(errors="replace")
    for documents in ([text], [line for line in text.splitlines() if line]):
        with contextlib.suppress(ValueError):
            return list(map(json.loads, documents))
    return []


def _change_recipe(run: Path, outside: Outside, chance: random.Random) -> str:
    """Change a killed run's settings of its handler: the folder and the names of its traces."""
    for file in sorted(run.glob("live/*/run.json")):
        try:
            document = json.loads(file.read_text()) if _is_ordinary(file) else {}
            name, value = (
                chance.choice(["folder", "filename", "merged", "remote", "merged_remote"]),
                chance.choice(outside.names),
            )
            document["recipes"][0][name] = value
        except (ValueError, LookupError, TypeError):
            continue
        file.write_text(json.dumps(document))
        return f"recipe: {name}={value[:40]!a}"
    return "nothing"


def _change_parquet(run: Path, outside: Outside, chance: random.Random) -> str:
    """Change the metadata of a Parquet file, or removes a column."""
    files = [path for path in sorted(run.rglob("*.parquet")) if _is_ordinary(path)]
    if not files:
        return "nothing"
    file = chance.choice(files)
    try:
        frame, document = polars.read_parquet(file), json.loads(polars.read_parquet_metadata(file)["kinetoscope"])
    except (polars.exceptions.PolarsError, OSError, KeyError):
        return "nothing"
    where = _set_somewhere(document, outside.value(chance), chance)
    if chance.random() < 0.3:
        column = chance.choice(frame.columns)
        frame = frame.drop(column) if chance.random() < 0.5 else frame.with_columns(polars.lit("x").alias(column))
        where += f", {column}"
    frame.write_parquet(file, metadata={"kinetoscope": json.dumps(document)})
    return f"{file.name}: {where}"


def _is_ordinary(path: Path) -> bool:
    """Return whether the file may be written to: it exists, has no other link, and was not made huge before."""
    if not path.is_file() or path.is_symlink():
        return False
    return path.stat().st_nlink == 1 and path.stat().st_size < HUGE


def _set_somewhere(fields: object, value: object, chance: random.Random) -> str:
    """Replace some value in nested lists and dicts."""
    keys = list(fields) if isinstance(fields, dict) else list(range(len(fields)))  # type: ignore[arg-type]
    if not keys:
        return "nothing"
    key = chance.choice(keys)
    below = fields[key]  # type: ignore[index]
    if isinstance(below, (dict, list)) and below and chance.random() < 0.8:
        return f"{key}.{_set_somewhere(below, value, chance)}"
    fields[key] = value  # type: ignore[index]
    return f"{key}={str(value)[:40]!a}"


def _add_entries(run: Path, outside: Outside, chance: random.Random) -> str:
    """Add lines to a manifest and entries to the queue, in the usual form, that name something outside."""
    path, url = (
        chance.choice(outside.names),
        chance.choice([*outside.names[-9:], "s3://kinetoscope-tests/allowed/y.json"]),
    )
    finished = {"type": "finished", "rank": 0, "path": path, "size_bytes": 1, "timestamp": {}, "cycle": 9}
    manifest = run / "traces" / ".manifest" / "rank0.jsonl"
    queue = run / ".uploads" / "rank0"
    number = chance.randrange(10**6)
    if not _is_ordinary(manifest) or queue.is_symlink():
        return "nothing"
    try:
        with manifest.open("a") as stream:
            stream.write(json.dumps(finished) + "\n" + json.dumps({"type": "expired", "path": path}) + "\n")
        (queue / f"{number:020}-1-1.json").write_text(json.dumps({"path": path, "url": url}))
        (queue / f"{number:020}-1-1.expendable").touch()
    except OSError:
        return "nothing"
    return f"entries for {path[:40]!a} to {url[:40]!a}"


def _replace(run: Path, outside: Outside, chance: random.Random) -> str:
    """Replace a file or a folder by something else."""
    path = chance.choice([path for path in sorted(run.rglob("*")) if path.name != "link"])
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    kind = chance.choice(["link", "link", "link", "folder", "pipe", "second", "huge", "empty", "bytes", "bomb"])
    if kind == "pipe" and path in (run / "traces", run / "traces" / "ep0-ba2-rank0.json"):
        kind = "link"  # commands get these two by name, and would wait for a pipe that they are given
    if kind == "link":
        path.symlink_to(outside.folder / chance.choice(["file", "folder", "live", "live/run.json", "nothing", ""]))
    elif kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "second":
        os.link(outside.folder / "file", path)
    elif kind == "huge":
        with path.open("wb") as stream:
            stream.truncate(HUGE)
    elif kind == "bomb":
        path.write_bytes(gzip.compress(bytes(64 << 20), 9))
    else:
        path.write_bytes(chance.randbytes(1000) if kind == "bytes" else b"")
    return f"{path.relative_to(run)} is a {kind}"


def _add_name(run: Path, outside: Outside, chance: random.Random) -> str:
    """Add a file with an unusual name."""
    folders = [path for path in sorted(run.rglob("*")) if path.is_dir() and not path.is_symlink()]
    names = [
        "rank\u00b2",
        "rank99999999999.jsonl",
        "rank-1",
        "a\x1b[2Jb.json",
        "-rf.json",
        "x" * 240 + ".json",
        "~",
        "*.json",
    ]
    names += [
        "99999999999.names",
        "1-1.chunk",
        "1-1.track",
        "1-1.spool",
        "x.partial",
        "y.aside",
        "{rank}.json",
        "..json",
    ]
    path = chance.choice([run, *folders]) / chance.choice(names)
    if os.path.lexists(path):
        return "nothing"
    content = chance.choice(
        [b"", b"{}", b'{"traceEvents": []}', struct.pack("<8sIIIIII", b"KSSPOOL\0", 1, 1, 1, 1, 1, 2**32 - 1)]
    )
    path.write_bytes(content)
    return f"{path.name[:40]!a} is there"


def _add_link(run: Path, outside: Outside, chance: random.Random) -> str:
    """Add a link or a pipe that has the name of a trace."""
    path = run / "traces" / f"ep0-ba{chance.randrange(100)}-rank1.json"
    if os.path.lexists(path) or not path.parent.is_dir() or path.parent.is_symlink():
        return "nothing"
    if chance.random() < 0.3:
        os.mkfifo(path)
    else:
        path.symlink_to(outside.folder / "folder" / "file.json")
    return f"{path.name} is a link or a pipe"


def _add_cache(run: Path, outside: Outside, chance: random.Random) -> str:
    """Add a cache in the form of earlier versions, with the columns of another trace: it must not be used."""
    trace, parquet = run / "traces" / "ep0-ba2-rank0.json", run / "traces" / "some.parquet"
    folder = run / "traces" / ".kinetoscope_cache"
    if not (_is_ordinary(trace) and _is_ordinary(parquet)) or trace.parent.is_symlink() or os.path.lexists(folder):
        return "nothing"
    try:
        frame, document = polars.read_parquet(parquet), json.loads(polars.read_parquet_metadata(parquet)["kinetoscope"])
        frame = frame.with_columns(polars.lit(STRANGE).alias("name"))
    except (polars.exceptions.PolarsError, OSError, KeyError):
        return "nothing"
    folder.mkdir()
    status = trace.stat()
    document = json.dumps(document | {"fingerprint": f"{status.st_size}-{status.st_mtime_ns}"})
    frame.write_parquet(folder / f"{trace.name}.parquet", metadata={"kinetoscope": document})
    return f"a cache for {trace.name}"


def _add_pointer(run: Path, outside: Outside, chance: random.Random) -> str:
    """Add a pointer to a spool folder elsewhere."""
    path = run / "live" / f"{chance.randrange(100)}.elsewhere"
    if os.path.lexists(path) or path.parent.is_symlink():
        return "nothing"
    target = chance.choice(
        [outside.folder / "live", outside.folder / "folder", outside.folder, "/", "../../outside/live"]
    )
    try:
        path.write_text(f"{target}\n{chance.choice(['', 'token', 'a' * 10**5])}\n")
    except OSError:
        return "nothing"
    return f"{path.name} points to {target}"
