"""Errors that users can fix. The command line shows their message instead of a traceback."""


class GrassError(ValueError):
    """Something the user can fix: the message is one clear sentence that names the problem.

    The command line prints the message alone (a traceback only with ``--debug``). Subclasses say
    what is wrong in general, so that programs need not read the message.
    """


class ConfigError(GrassError):
    """A setting or preset does not exist, has an invalid value, or contradicts another one."""


class DataError(GrassError):
    """A graph, a table or a target does not fit what the task or the model expects."""


class RunError(GrassError):
    """A run folder or one of its files is missing, damaged, unfinished or in use."""


def first_line(error: BaseException) -> str:
    """The first line of another library's error message, without the full stop."""
    text = str(getattr(error, "reason", None) or error).strip() or type(error).__name__
    return text.splitlines()[0].rstrip(".: ")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error from Python or torch means that memory ran out."""
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError)
        and any(words in str(error) for words in ("allocate memory", "out of memory"))
    )
