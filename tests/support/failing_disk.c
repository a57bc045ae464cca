/* Preloaded. FAILING_READ: the end of a file's path and, behind a colon, how many of its bytes can be read
   before an error. KILLING_WRITE: a part of a file's path; the process is killed where it would write to such
   a file. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static ssize_t path_of(int descriptor, char path[4096]) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const ssize_t length = readlink(link, path, 4095);
  path[length < 0 ? 0 : length] = '\0';
  return length;
}

/* How much of the file can be read; -1: all of it. */
static long readable(int descriptor) {
  const char* rule = getenv("FAILING_READ");
  const char* colon = rule ? strrchr(rule, ':') : NULL;
  if (!colon) return -1;
  char path[4096];
  const ssize_t length = path_of(descriptor, path), end = colon - rule;
  return length >= end && memcmp(path + length - end, rule, (size_t)end) == 0 ? atol(colon + 1) : -1;
}

static ssize_t limited(int descriptor, void* out, size_t count, off_t offset) {
  ssize_t (*real)(int, void*, size_t, off_t) =
      (ssize_t(*)(int, void*, size_t, off_t))dlsym(RTLD_NEXT, "pread");
  const long end = readable(descriptor);
  if (end < 0 || offset + (off_t)count <= end) return real(descriptor, out, count, offset);
  if (offset < end) return real(descriptor, out, (size_t)(end - offset), offset);
  errno = EIO;
  return -1;
}

ssize_t pread(int descriptor, void* out, size_t count, off_t offset) {
  return limited(descriptor, out, count, offset);
}
ssize_t pread64(int descriptor, void* out, size_t count, off64_t offset) {
  return limited(descriptor, out, count, offset);
}

ssize_t read(int descriptor, void* out, size_t count) {
  ssize_t (*real)(int, void*, size_t) = (ssize_t(*)(int, void*, size_t))dlsym(RTLD_NEXT, "read");
  if (readable(descriptor) < 0) return real(descriptor, out, count);
  const ssize_t got = limited(descriptor, out, count, lseek(descriptor, 0, SEEK_CUR));
  if (got > 0) lseek(descriptor, got, SEEK_CUR);
  return got;
}

static void* writing(int descriptor, const char* name) {
  const char* rule = getenv("KILLING_WRITE");
  char path[4096];
  if (rule && path_of(descriptor, path) > 0 && strstr(path, rule)) raise(SIGKILL);
  return dlsym(RTLD_NEXT, name);
}

ssize_t write(int descriptor, const void* in, size_t count) {
  return ((ssize_t(*)(int, const void*, size_t))writing(descriptor, "write"))(descriptor, in, count);
}

ssize_t writev(int descriptor, const struct iovec* in, int count) {
  return ((ssize_t(*)(int, const struct iovec*, int))writing(descriptor, "writev"))(descriptor, in, count);
}
