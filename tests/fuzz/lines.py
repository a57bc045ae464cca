"""Prints how many lines of the readers were run, from the JSON of `llvm-cov export -summary-only` on standard input.

usage: llvm-cov export -summary-only .. | lines.py
"""
import json
import re
import sys
from collections import defaultdict
from pathlib import Path

FOLDERS = ("src/io/checkpoint", "src/io/inputs", "src/io/hdf5", "src/io/outputs", "src/io/archive/codec_file", "src/app/job",
           "src/model/types")
NO_READERS = {"command", "h5_watch", "publish", "lock_file", "output_folder", "netcdf"}


def main():
    sums = defaultdict(lambda: [0, 0])
    for file in json.load(sys.stdin)["data"][0]["files"]:
        path = Path(file["filename"])
        folder = re.sub(".*?(?=src/)", "", str(path.parent))  # compiled with -ffile-prefix-map
        if folder == "src/io/archive" and path.stem == "codec_file":  # the rest codes numbers
            folder += "/codec_file"
        if folder not in FOLDERS or path.stem in NO_READERS:
            continue
        lines = file["summary"]["lines"]
        for key in (folder, "all"):
            sums[key][0] += lines["covered"]
            sums[key][1] += lines["count"]
        if "-v" in sys.argv:
            print(f"{lines['covered']:5} of {lines['count']:5} {folder}/{path.name}")
    print("| readers | lines run | of | share |\n| --- | --- | --- | --- |")
    for folder in (*FOLDERS, "all"):
        covered, count = sums[folder]
        print(f"| {folder} | {covered} | {count} | {100 * covered / max(1, count):.1f} % |")


if __name__ == "__main__":
    main()
