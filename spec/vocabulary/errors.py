"""The one error that is shown to a user as a message rather than a traceback."""


class UserError(Exception):
    """Input that the user can correct. The message names the file, line or field, and the remedy.

    The command line prints the message alone and exits with status 2.
    """
