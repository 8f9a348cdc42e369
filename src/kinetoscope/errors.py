"""Every exception of Kinetoscope, in one tree.

    KinetoscopeError
    ├── ScheduleError         (also ValueError, AssertionError)   a schedule that makes no sense
    ├── FileNameError         (also ValueError)                   a file-name format that cannot be filled in
    ├── FolderNotEmptyError   (also FileExistsError)              a folder with traces of another run
    ├── FolderNotWritableError(also PermissionError)              a folder we may not write to
    │   └── TraceFolderError      (also RuntimeError)             the folder of a torch trace handler
    ├── SettingsError         (also ValueError)                   an argument that cannot work
    │   ├── ActivityTypeError     (also TypeError)                a value that is no profiler activity
    │   └── NoActivitiesError     (also AssertionError)           no activity at all
    ├── MarkerError           (also RuntimeError)                 start and finish out of order
    ├── ProfilerStateError    (also RuntimeError)                 a call at the wrong moment
    │   └── NothingRecordedError  (also AssertionError)           results requested before there are any
    ├── TraceFileError        (also ValueError)                   a trace file that cannot be read
    ├── OutputError           (also OSError)                      a file that cannot be written, such as on a full disk
    ├── UploadError           (also OSError)                      a store that does not hold what was uploaded
    ├── UnsafePathError       (also PermissionError)              a name in a run's folder that leads out of it
    ├── UnsupportedSystemError(also OSError)                      something that this operating system cannot do
    ├── MergeError            (also ValueError)                   traces that cannot be put together
    ├── ClusterError          (also RuntimeError)                 a Dask cluster that cannot do the work
    ├── NativeExtensionError  (also ImportError)                  the native extension is missing or incomplete
    └── MissingExtraError     (also ImportError)                  a package that is not installed

An error also derives from the builtin that torch or Composer raises in the same place, so that code written for them
catches ours too.
"""


class KinetoscopeError(Exception):
    """Root of all errors that Kinetoscope raises on purpose."""


class ScheduleError(KinetoscopeError, ValueError, AssertionError):
    """The arguments of a schedule cannot work."""


class FileNameError(KinetoscopeError, ValueError):
    """A file-name format has an unknown variable, or would name one file for two ranks."""


class FolderNotEmptyError(KinetoscopeError, FileExistsError):
    """A trace folder already holds files and overwriting was not allowed."""


class FolderNotWritableError(KinetoscopeError, PermissionError):
    """A trace folder cannot be made or written to."""


class TraceFolderError(FolderNotWritableError, RuntimeError):
    """The folder of a torch trace handler cannot be made."""


class SettingsError(KinetoscopeError, ValueError):
    """An argument of a constructor cannot work; the message names it."""


class ActivityTypeError(SettingsError, TypeError, AssertionError):
    """The activities of a torch profiler contain a value that is no activity."""


class NoActivitiesError(SettingsError, AssertionError):
    """A torch profiler was given no activity to record."""


class MarkerError(KinetoscopeError, RuntimeError):
    """A marker was started twice or finished without a start on this thread."""


class ProfilerStateError(KinetoscopeError, RuntimeError):
    """A call that the profiler cannot execute in its current state."""


class NothingRecordedError(ProfilerStateError, AssertionError):
    """Results were requested before there were any."""


class TraceFileError(KinetoscopeError, ValueError):
    """A trace file is empty, not a trace, or damaged beyond reading."""


class OutputError(KinetoscopeError, OSError):
    """A file cannot be written completely. An earlier file of its name is still there."""


class UploadError(KinetoscopeError, OSError):
    """After an upload the store does not hold what was sent."""


class UnsafePathError(KinetoscopeError, PermissionError):
    """A file names a path that is not used: it leads out of the run's folder, or is no regular file."""


class UnsupportedSystemError(KinetoscopeError, OSError):
    """This operating system lacks a required feature; the message names it."""


class MergeError(KinetoscopeError, ValueError):
    """Traces cannot be merged: no common clock, or nothing to merge."""


class ClusterError(KinetoscopeError, RuntimeError):
    """A Dask cluster cannot be reached, or cannot do the work: no workers, other versions, workers that end."""


class NativeExtensionError(KinetoscopeError, ImportError):
    """The native extension cannot be used here; the message gives the reason and the remedy."""


class MissingExtraError(KinetoscopeError, ImportError):
    """A required package is not installed; the message has the command that installs it."""
