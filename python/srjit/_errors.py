"""Exceptions of the package."""

from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    """A place in a text. Lines and columns count from 1; columns count bytes.

    For token arrays, `column` is the number of the token, from 1. A length of 0 means the end of the text.
    """

    line: int
    column: int
    length: int


class Error(Exception):
    """A failure of the library.

    Attributes:
        code: What kind it is: ``"syntax"`` (text that is no expression), ``"invalid"`` (a value that breaks a rule),
            ``"io"``, ``"unsupported"`` (a combination that this build or machine does not have), ``"compile"``,
            ``"machine"`` (no device or driver, or too little memory), ``"cancelled"`` or ``"limit"`` (more than a limit
            of `Engine` allows).
        where: Its place in a text (`Place`), or None.
    """

    def __init__(self, message: str, code: str = "invalid", where: Place | None = None):
        super().__init__(message)
        self.code = code
        self.where = where

    def __reduce__(self):
        return type(self), (str(self), self.code, self.where)


class InvalidError(Error, ValueError):
    """An argument that breaks a rule, or a text that is no expression: an `Error` and a ``ValueError``."""


def error_of(code: str, message: str, where: tuple[int, int, int] | None) -> Error:
    """The exception for an error of the C++ library."""
    kind = InvalidError if code in ("invalid", "syntax") else Error
    return kind(message, code, None if where is None else Place(*where))
