"""The one error that users see as a sentence."""


class GrassError(Exception):
    """Something the user can mend: the message is one clear sentence that names what is wrong.

    The command line prints the sentence alone (a traceback only with ``--debug``).
    """
