"""A Hugging Face hub on this machine, for the tests of checkpoints/fetch.py: the part of the protocol that downloads
with huggingface_hub 2.4 use.

    GET  /api/models/REPOSITORY/refs             branches with their commits
    GET  /api/models/REPOSITORY/tree/REVISION    files with size and digest
    HEAD, GET /REPOSITORY/resolve/REVISION/FILE  a small file itself; for a large one a redirect to
    GET  /content/SHA256                         its bytes, ranges of them too
"""
import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def git_digest(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def is_large(name):
    """Returns whether the hub keeps a file outside of git."""
    return name.endswith((".safetensors", ".bin"))


class Hub(ThreadingHTTPServer):
    """repositories: {repository: {revision: {file name: content}}}. `sent_instead` {content: other content} makes it
    send something other than it lists; `stall` {content: bytes} makes it stop after this many bytes, until `go_on` is
    set. `requests` holds (method, path, Range header)."""

    daemon_threads = True

    def __init__(self, repositories):
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories = repositories
        self.sent_instead, self.stall = {}, {}
        self.go_on = threading.Event()
        self.requests = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def commit(self, repository, revision):
        """Returns 40 hexadecimal digits for the files of a revision."""
        files = self.repositories[repository][revision]
        text = repository + "".join(f"{name} {sha256(content)}" for name, content in sorted(files.items()))
        return hashlib.sha1(text.encode()).hexdigest()

    def files(self, repository, revision):
        """Returns (commit, files) of a branch or a commit; None if it does not exist."""
        for branch, files in self.repositories[repository].items():
            commit = self.commit(repository, branch)
            if revision in (branch, commit):
                return commit, files
        return None

    def content(self, digest):
        """Returns what is sent as the content of a digest, and after how many bytes it stalls."""
        for revisions in self.repositories.values():
            for files in revisions.values():
                for content in files.values():
                    if sha256(content) == digest:
                        return self.sent_instead.get(content, content), self.stall.get(content)
        return None

    def downloads(self):
        """Returns the requests for contents of files."""
        return [request for request in self.requests if request[0] == "GET" and not request[1].startswith("/api/")]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        self.answer()

    def answer(self):
        path = urlsplit(self.path).path
        self.server.requests.append((self.command, unquote(path), self.headers.get("Range")))
        if match := re.fullmatch(r"/content/(\w+)", path):
            self.send_content(match[1])
        elif match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/(refs|tree/([^/]+))", path):
            self.in_repository(match[1], lambda: self.send_refs(match[1]) if match[2] == "refs"
                               else self.in_revision(match[1], match[3], self.send_tree))
        elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self.in_repository(match[1], lambda: self.in_revision(
                match[1], match[2], lambda commit, files: self.send_file(commit, files, unquote(match[3]))))
        else:
            self.send_error_code(404, "EntryNotFound")

    def in_repository(self, repository, send):
        if repository in self.server.repositories:
            send()
        else:
            self.send_error_code(401, "RepoNotFound")

    def in_revision(self, repository, revision, send):
        found = self.server.files(repository, unquote(revision))
        if found is None:
            self.send_error_code(404, "RevisionNotFound")
        else:
            send(*found)

    def send_refs(self, repository):
        branches = [{"name": name, "ref": f"refs/heads/{name}", "targetCommit": self.server.commit(repository, name)}
                    for name in self.server.repositories[repository]]
        self.send_bytes(json.dumps({"branches": branches, "converts": [], "tags": []}).encode())

    def send_tree(self, _, files):
        entries = [{"type": "directory", "oid": "0" * 40, "size": 0, "path": "original"}]
        for name, content in files.items():
            entry = {"type": "file", "oid": git_digest(content), "size": len(content), "path": name}
            if is_large(name):
                entry["oid"] = git_digest(b"version https://git-lfs.github.com/spec/v1")  # that of the pointer file
                entry["lfs"] = {"oid": sha256(content), "size": len(content), "pointerSize": 135}
            entries.append(entry)
        self.send_bytes(json.dumps(entries).encode())

    def send_file(self, commit, files, name):
        if name not in files:
            self.send_error_code(404, "EntryNotFound")
        elif is_large(name):
            digest = sha256(files[name])
            self.send_bytes(b"", 302, {"X-Repo-Commit": commit, "X-Linked-Size": str(len(files[name])),
                                       "X-Linked-Etag": f'"{digest}"', "Location": f"/content/{digest}"})
        else:
            content = self.server.sent_instead.get(files[name], files[name])
            self.send_bytes(content, 200, {"X-Repo-Commit": commit, "ETag": f'"{git_digest(files[name])}"'})

    def send_content(self, digest):
        content, stall = self.server.content(digest)
        first = int(re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "bytes=0-")[1])
        if first >= len(content) > 0:
            self.send_error_code(416, "")
        elif self.headers.get("Range"):
            headers = {"Content-Range": f"bytes {first}-{len(content) - 1}/{len(content)}"}
            self.send_bytes(content[first:], 206, {"ETag": f'"{digest}"', **headers}, stall)
        else:
            self.send_bytes(content, 200, {"ETag": f'"{digest}"', "Accept-Ranges": "bytes"}, stall)

    def send_error_code(self, status, code):
        self.send_bytes(b"", status, {"X-Error-Code": code, "X-Error-Message": code})

    def send_bytes(self, body, status=200, headers=None, stall=None):
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        try:
            self.wfile.write(body[:stall])
            if stall is not None:
                self.server.go_on.wait()
                self.wfile.write(body[stall:])
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the other side was killed
