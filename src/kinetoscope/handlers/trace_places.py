"""handlers: where recovered traces go. What a killed run says of its handlers flows in; folders and names that lead
nowhere else flow out."""

import os
from collections.abc import Callable, Collection
from pathlib import Path

from kinetoscope.errors import FileNameError, SettingsError
from kinetoscope.live.folders import LiveRun, TraceRecipe
from kinetoscope.recording.cycle import Cycle
from kinetoscope.training.file_names import FileNameFormat
from kinetoscope.training.remote_url import check_url
from kinetoscope.training.run_folder import RunFolder

# For a run none of whose handlers writes files: what was recorded is in its live folder all the same.
_OURS = TraceRecipe("traces", "ep{epoch}-ba{batch}-rank{rank}.json", "merged_trace.json")


class TracePlaces:
    """Chooses for each handler of a killed run the folder and the names of its traces.

    They are those that the run names, if its folder is in the run's folder, or is one of those ``named`` again by who
    recovers it; else they are ours, in ``traces`` in the run's folder, and ``say`` is told so once.
    """

    def __init__(
        self,
        run_folder: str | os.PathLike[str],
        named: Collection[str | os.PathLike[str]],
        say: Callable[[str], object],
    ) -> None:
        self._run = RunFolder(run_folder)
        self._named = {Path(os.path.realpath(folder)) for folder in named}
        self._tell = say
        self._said: set[str] = set()

    def choose(self, run: LiveRun, cycle: Cycle) -> list[TraceRecipe]:
        """The recipes of a run's handlers, for one cycle; each with its folder's whole path. Raises OSError if there is
        none that can be written to."""
        return list(dict.fromkeys(self._choose(recipe, run, cycle) for recipe in run.recipes or [_OURS]))

    def _choose(self, recipe: TraceRecipe, run: LiveRun, cycle: Cycle) -> TraceRecipe:
        folder = self._folder(recipe, run)
        filename, merged = recipe.filename, recipe.merged
        try:
            name = FileNameFormat(filename).fill(run.run_name, cycle.ranks, cycle.timestamp)
            RunFolder(folder).path_of(name)
            RunFolder(folder).path_of(merged or name)
        except (OSError, FileNameError) as error:
            self._say(f"Rank {run.rank}'s traces get other names than its run gave them. {error}")
            filename, merged = _OURS.filename, _OURS.merged
        remote = self._checked(recipe.remote, run, cycle)
        # The merged file's is a URL already, and no format.
        merged_remote = self._checked(recipe.merged_remote.replace("{", "{{").replace("}", "}}"), run, cycle)
        merged_remote = recipe.merged_remote if merged_remote else ""
        return TraceRecipe(str(folder), filename, merged, recipe.in_pairs, remote, merged_remote)

    def _checked(self, remote: str, run: LiveRun, cycle: Cycle) -> str:
        """The format of URLs ``remote``; empty if it does not give any."""
        try:
            if remote:
                check_url(FileNameFormat(remote).fill(run.run_name, cycle.ranks, cycle.timestamp), "remote")
        except (FileNameError, SettingsError) as error:
            self._say(f"Rank {run.rank}'s traces do not wait to be uploaded. {error}")
            return ""
        return remote

    def _folder(self, recipe: TraceRecipe, run: LiveRun) -> Path:
        try:
            return self._run.make_folder(recipe.folder)
        except OSError:
            wanted = os.path.abspath(self._run.path / recipe.folder.replace("\0", ""))
        if Path(os.path.realpath(wanted)) in self._named:
            return Path(os.path.realpath(wanted))
        ours = self._run.make_folder(_OURS.folder)
        self._say(
            f"Rank {run.rank}'s traces are written to {ours}. Its run had them in {wanted!r}, which is outside of the "
            f"run's folder, or behind a link: they go there only with --traces DIR."
        )
        return ours

    def _say(self, sentence: str) -> None:
        if sentence not in self._said:
            self._said.add(sentence)
            self._tell(sentence)
