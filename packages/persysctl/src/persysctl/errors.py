"""Errors for people, each with the exit code that it ends the process with."""

from __future__ import annotations

from persysctl.exit_codes import ExitCode

__all__ = ["ConnectionLostError", "CtlError", "RefusedError", "TooLateError", "UsageError"]


class CtlError(Exception):
    """A failure whose text a person can act on; no traceback is shown for it."""

    exit_code = ExitCode.FAILED


class RefusedError(CtlError):
    """The scheduler answered, and the answer is no.

    ``not_found`` and ``retryable`` tell the two refusals apart that a waiting command lives with.
    """

    def __init__(self, text: str, *, not_found: bool = False, retryable: bool = False) -> None:
        super().__init__(text)
        self.not_found = not_found
        self.retryable = retryable


class TooLateError(CtlError):
    """The time ran out before an answer came."""

    exit_code = ExitCode.NOT_YET


class ConnectionLostError(CtlError):
    """No scheduler could be reached, or the connection broke before the answer."""

    exit_code = ExitCode.USAGE_OR_CONNECTION


class UsageError(CtlError):
    """The call itself is wrong: arguments, settings or a manifest."""

    exit_code = ExitCode.USAGE_OR_CONNECTION
