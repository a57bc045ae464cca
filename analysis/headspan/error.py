"""Errors that are reported to the user in headspan's one-line form. Any other exception is a bug."""
import sys


class InputError(Exception):
    """The input is at fault: exit code 2. `FILE: FIELD = VALUE: what is wrong; what would be right`."""

    def __init__(self, file="", field="", value="", wrong="", right=""):
        self.file, self.field, self.value, self.wrong, self.right = map(str, (file, field, value, wrong, right))
        subject = " = ".join(part for part in (self.field, self.value) if part)
        text = ": ".join(part for part in (self.file, subject, self.wrong) if part)
        super().__init__(printable(text + (f"; {self.right}" if self.right else "")))


def printable(text):
    """Escapes line breaks and control characters: names and values come from files."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


class EnvironmentFailed(Exception):
    """The input is sound, but a file, a folder or a package is not: exit code 1."""


def exit_code(program, install, step):
    """Returns what step() returns, or the exit code of the error that it raises, which is printed as `program`'s.
    install: the argument of pip."""
    try:
        return step()
    except InputError as error:
        told, code = str(error), 2
    except EnvironmentFailed as error:
        told, code = str(error), 1
    except ImportError as error:
        told, code = f"the package {error.name} is missing: pip install {install}", 1
    print(f"{program}: {told}", file=sys.stderr)
    return code
