"""Facts from the header of a trace: rank, run, clock, process groups and devices."""

from typing import Any

from kinetoscope.core.clock.file_clock import FileClock, parse_file_clock
from kinetoscope.formats.header import rank_in_name, read_object
from kinetoscope.formats.health import describe_losses

_NO_TITLES = ("default_pg", "undefined", "")


class TraceHeader:
    """The fields of a trace's file beside its events, as values."""

    name: str
    header: dict[str, Any]
    repairs: list[str]

    @property
    def rank(self) -> int | None:
        """The rank in the file's header, else in its name; None if neither has one, or if the trace is merged."""
        if self.is_merged:
            return None
        for header in (self._kinetoscope_header, self._distributed_info):
            rank = header.get("rank")
            if isinstance(rank, int) and rank >= 0:
                return rank
        return rank_in_name(self.name)

    @property
    def is_merged(self) -> bool:
        """True for a merged trace, in which each rank is a process whose pid is the rank."""
        return bool(self._kinetoscope_header.get("merged"))

    @property
    def notes(self) -> list[str]:
        """Notes in sentences, for example on files that a merge left out and on lost records."""
        notes = self._kinetoscope_header.get("notes")
        sentences = [note for note in notes if isinstance(note, str)] if isinstance(notes, list) else []
        return sentences + describe_losses(self._kinetoscope_header)

    @property
    def is_cut(self) -> bool:
        """True if the file ends before its last event does, so that it may lack much that was recorded."""
        return any("ends too early" in repair for repair in self.repairs)

    @property
    def world_size(self) -> int | None:
        """The number of ranks of the run, if the file has it."""
        size = self._distributed_info.get("world_size")
        return size if isinstance(size, int) else None

    @property
    def host(self) -> str | None:
        """The machine on which the trace was recorded, if the file has it."""
        host = self._kinetoscope_header.get("host") or self.header.get("host_name")
        return str(host) if host else None

    @property
    def clock_bound_ns(self) -> int | None:
        """The error bound of its clock compared with rank 0's: 0 if they share one, None if unknown."""
        bound = read_object(self._kinetoscope_header, "clock", "beside_rank0").get("bound_ns")
        return bound if isinstance(bound, int) else None

    @property
    def clock(self) -> FileClock | None:
        """Its clock's offsets to unix time and to rank 0's; None if the file has none, or is merged."""
        return None if self.is_merged else parse_file_clock(self._kinetoscope_header)

    @property
    def run_name(self) -> str | None:
        """The name of the run, if the file has it."""
        name = self._kinetoscope_header.get("run_name")
        return name if isinstance(name, str) else None

    @property
    def starts(self) -> frozenset[str]:
        """The names of the process starts that recorded it, if the file has them; a merged trace has several."""
        names = (header.get("start") for header in self._headers_of_files)
        return frozenset(start for start in names if isinstance(start, str) and start)

    @property
    def is_recovered(self) -> bool:
        """True if `recover` made it, or a part of a merged trace, of the unsaved data of a killed process."""
        listed = self._kinetoscope_header.get("files")
        headers = [read_object(file, "header") for file in listed] if isinstance(listed, list) else [self.header]
        return any(header.get("recovered") is True for header in headers)

    @property
    def warmup_batches(self) -> list[tuple[int, int]]:
        """The batches that only warmed up before the recording: the first, and the first one after them."""
        listed = self._kinetoscope_header.get("warmup_batches")
        pairs = listed if isinstance(listed, list) else []
        return [(pair[0], pair[1]) for pair in pairs if _is_pair_of_numbers(pair)]

    @property
    def process_groups(self) -> dict[str, list[int]]:
        """The ranks of each process group that Kineto lists, by its name. A default group without a list has all."""
        return {name: self._ranks_of(group) for name, group in self._groups.items()}

    @property
    def group_titles(self) -> dict[str, str]:
        """The descriptions of process groups by name, without those that torch makes up.

        That of a dimension of a device mesh is its name, such as ``tp``.
        """
        titles = {name: group.get("pg_desc") for name, group in self._groups.items()}
        titles = {name: title.removeprefix("mesh_") for name, title in titles.items() if isinstance(title, str)}
        return {name: title for name, title in titles.items() if title not in _NO_TITLES and ":" not in title}

    @property
    def group_threads(self) -> dict[int, str]:
        """The names of process groups by the threads that run only their collectives."""
        listed = ((name, group.get("threads")) for name, group in self._groups.items())
        return {
            thread: name
            for name, threads in listed
            for thread in (threads if isinstance(threads, list) else ())
            if isinstance(thread, int)
        }

    @property
    def _groups(self) -> dict[str, dict[str, Any]]:
        listed = self._distributed_info.get("pg_config")
        groups = [group for group in listed if isinstance(group, dict)] if isinstance(listed, list) else []
        return {str(group["pg_name"]): group for group in groups if "pg_name" in group}

    def _ranks_of(self, group: dict[str, Any]) -> list[int]:
        ranks, size = group.get("ranks"), group.get("pg_size")
        if isinstance(ranks, list) and ranks and all(isinstance(rank, int) for rank in ranks):
            return ranks
        return list(range(size)) if isinstance(size, int) and size == self.world_size else []

    @property
    def devices(self) -> dict[int, dict[str, Any]]:
        """Kineto's properties of each device, such as its ``name``, by its number."""
        listed = self.header.get("deviceProperties")
        devices = [device for device in listed if isinstance(device, dict)] if isinstance(listed, list) else []
        return {device["id"]: device for device in devices if isinstance(device.get("id"), int)}

    @property
    def _headers_of_files(self) -> list[dict[str, Any]]:
        """Kinetoscope's headers; of a merged trace those of the files in it."""
        files = self._kinetoscope_header.get("files")
        listed = [read_object(file, "header", "kinetoscope") for file in files] if isinstance(files, list) else []
        return listed if self.is_merged else [self._kinetoscope_header]

    @property
    def _kinetoscope_header(self) -> dict[str, Any]:
        return read_object(self.header, "kinetoscope")

    @property
    def _distributed_info(self) -> dict[str, Any]:
        return read_object(self.header, "distributedInfo")


def _is_pair_of_numbers(pair: Any) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and all(type(one) is int and abs(one) < 2**62 for one in pair)
