"""Holds text files to .editorconfig: encoding, ends of lines, the last newline, blanks at ends of lines, tabs.

    python check_text.py FILE...      needs EditorConfig; a line for each finding, exit code 1 if there are any
"""
import sys
from pathlib import Path

import editorconfig


def findings(data, rules):
    """(line, what is wrong) of a file's bytes."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        yield data.count(b"\n", 0, error.start) + 1, "is not UTF-8"
        return
    if rules.get("insert_final_newline") == "true" and text and not text.endswith("\n"):
        yield text.count("\n") + 1, "no newline at the end of the file"
    for number, line in enumerate(text.split("\n"), 1):
        if rules.get("end_of_line") == "lf" and "\r" in line:
            yield number, "a carriage return"
        if rules.get("trim_trailing_whitespace") == "true" and line != line.rstrip():
            yield number, "blanks at the end of the line"
        if rules.get("indent_style") == "space" and "\t" in line[:len(line) - len(line.lstrip())]:
            yield number, "a tab in the indentation"


def main(paths):
    found = 0
    for path in map(Path, paths):
        rules = editorconfig.get_properties(str(path.resolve()))
        if rules.get("charset") != "utf-8":
            continue
        for number, wrong in findings(path.read_bytes(), rules):
            print(f"{path}:{number}: {wrong}")
            found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
