"""What is told to the user, in headspan's one-line form. Everything else that is raised is a defect of ours."""


class InputError(Exception):
    """The input is at fault: exit code 2. `FILE: FIELD = VALUE: what is wrong; what would be right`."""

    def __init__(self, file="", field="", value="", wrong="", right=""):
        self.file, self.field, self.value, self.wrong, self.right = map(str, (file, field, value, wrong, right))
        subject = " = ".join(part for part in (self.field, self.value) if part)
        text = ": ".join(part for part in (self.file, subject, self.wrong) if part)
        super().__init__(text + (f"; {self.right}" if self.right else ""))


class EnvironmentFailed(Exception):
    """The input is sound, but a file, a folder or a package is not: exit code 1."""
