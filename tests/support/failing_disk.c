/* Preloaded: storage that fails. FAILING_DISK = "CALL PATTERN EFFECT WHEN" is a rule for calls on files whose
   path, absolute or as the program spells it, matches the pattern of fnmatch.

   CALL: open (for reading), create (open for writing; make a folder, or ask for leave to write to it), read,
   write, reserve, sync, close (of what was written and not synced), rename (the new name), remove, lock,
   await (a lock that is waited for), or any of these: *.

   EFFECT: the number of an error; kill; wait=MILLISECONDS; trace=FILE, to which "RANK CALL PATH" is added;
   replace, which renames PATH.other to PATH.

   WHEN: N, at the N-th such call of a process; N+, from it on; @N, where byte N or a later one is read.

   FAILING_RANK: the only rank that has the rule. Calls that libc makes itself, as fopen does, are not seen.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static struct {
  char call[16], pattern[1024], effect[1024], when[32];
  bool given;
  long seen;
} rule;

static const char* rank(void) {
  const char *of_openmpi = getenv("OMPI_COMM_WORLD_RANK"), *of_mpich = getenv("PMI_RANK");
  return of_openmpi ? of_openmpi : of_mpich ? of_mpich : "0";
}

__attribute__((constructor)) static void read_rule(void) {
  const char *text = getenv("FAILING_DISK"), *only = getenv("FAILING_RANK");
  if (!text || (only && strcmp(only, rank()) != 0)) return;
  rule.given = sscanf(text, "%15s %1023s %1023s %31s", rule.call, rule.pattern, rule.effect, rule.when) == 4;
  if (rule.given) return;
  fprintf(stderr, "failing_disk: no rule: %s\n", text);
  abort();
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static void trace(const char* file, const char* call, const char* path) {
  char line[5120];
  const int length = snprintf(line, sizeof line, "%s %s %s\n", rank(), call, path);
  const int out = REAL(open)(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (REAL(write)(out, line, (size_t)length) != length) abort();
  REAL(close)(out);
}

static void replace(const char* path) {
  char other[5120];
  snprintf(other, sizeof other, "%s.other", path);
  if (REAL(rename)(other, path) != 0) abort();
}

static bool matches(const char* call, const char* path) {
  return rule.given && (rule.call[0] == '*' || strcmp(rule.call, call) == 0) &&
         fnmatch(rule.pattern, path, 0) == 0;
}

/* Returns whether the call is to fail; errno is then set. */
static bool fails(const char* call, const char* path) {
  if (!matches(call, path) || rule.when[0] == '@') return false;
  const int before = errno;
  char* end = rule.when;
  const long first = strtol(rule.when, &end, 10), now = __atomic_add_fetch(&rule.seen, 1, __ATOMIC_SEQ_CST);
  if (now < first || (now > first && *end != '+')) return false;
  if (strcmp(rule.effect, "kill") == 0) raise(SIGKILL);
  if (strcmp(rule.effect, "replace") == 0) replace(path);
  if (strncmp(rule.effect, "trace=", 6) == 0) trace(rule.effect + 6, call, path);
  if (strncmp(rule.effect, "wait=", 5) == 0) usleep((useconds_t)atoi(rule.effect + 5) * 1000);
  errno = atoi(rule.effect) > 0 ? atoi(rule.effect) : before;
  return atoi(rule.effect) > 0;
}

static const char* path_of(int descriptor, char path[4096]) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const ssize_t length = readlink(link, path, 4095);
  path[length < 0 ? 0 : length] = '\0';
  return path;
}

/* Whether a descriptor has been written to since it was synced. */
static bool* written(int descriptor) {
  static bool known[1024];
  return &known[(unsigned)descriptor % 1024];
}

static bool file_fails(const char* call, int descriptor) {
  char path[4096];
  return rule.given && fails(call, path_of(descriptor, path));
}

/* Reduces the bytes that are read from `offset` on to those in front of a rule's @N; fails where there are
 * none. */
static bool read_fails(int descriptor, size_t* count, off_t offset) {
  char path[4096];
  if (!rule.given || rule.when[0] != '@') return file_fails("read", descriptor);
  if (!matches("read", path_of(descriptor, path))) return false;
  const off_t end = atol(rule.when + 1);
  if (offset + (off_t)*count <= end) return false;
  errno = atoi(rule.effect);
  if (offset >= end) return true;
  *count = (size_t)(end - offset);
  return false;
}

static int opened(const char* name, int folder, const char* path, int flags, mode_t mode) {
  if (fails((flags & O_ACCMODE) == O_RDONLY ? "open" : "create", path)) return -1;
  return ((int (*)(int, const char*, int, ...))dlsym(RTLD_NEXT, name))(folder, path, flags, mode);
}

static mode_t mode_of(int flags, va_list rest) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
}

#define OPEN(name, parameter, folder)                    \
  int name(parameter const char* path, int flags, ...) { \
    va_list rest;                                        \
    va_start(rest, flags);                               \
    const mode_t mode = mode_of(flags, rest);            \
    va_end(rest);                                        \
    return opened("openat", folder, path, flags, mode);  \
  }
#define FOLDER int at,
OPEN(open, , AT_FDCWD)
OPEN(open64, , AT_FDCWD)
OPEN(openat, FOLDER, at)
OPEN(openat64, FOLDER, at)

ssize_t read(int file, void* out, size_t count) {
  return read_fails(file, &count, rule.given ? lseek(file, 0, SEEK_CUR) : 0) ? -1
                                                                             : REAL(read)(file, out, count);
}
ssize_t pread(int file, void* out, size_t count, off_t offset) {
  return read_fails(file, &count, offset) ? -1 : REAL(pread)(file, out, count, offset);
}
ssize_t pread64(int file, void* out, size_t count, off64_t offset) { return pread(file, out, count, offset); }

/* A call NAME(FILE, ...) of a kind that returns -1 where it fails. */
#define CALL(kind, result, name, parameters, arguments)                                           \
  result name parameters {                                                                        \
    if (strcmp(kind, "write") == 0 || strcmp(kind, "sync") == 0) *written(file) = kind[0] == 'w'; \
    return file_fails(kind, file) ? -1 : REAL(name) arguments;                                    \
  }
CALL("read", ssize_t, readv, (int file, const struct iovec* to, int count), (file, to, count))
CALL("read", ssize_t, preadv, (int file, const struct iovec* to, int count, off_t at), (file, to, count, at))
CALL("write", ssize_t, write, (int file, const void* in, size_t count), (file, in, count))
CALL("write", ssize_t, writev, (int file, const struct iovec* in, int count), (file, in, count))
CALL("write", ssize_t, pwrite, (int file, const void* in, size_t count, off_t at), (file, in, count, at))
CALL("write", ssize_t, pwrite64, (int file, const void* in, size_t count, off64_t at), (file, in, count, at))
CALL("write", ssize_t, pwritev, (int file, const struct iovec* in, int count, off_t at),
     (file, in, count, at))
CALL("reserve", int, ftruncate, (int file, off_t size), (file, size))
CALL("reserve", int, ftruncate64, (int file, off64_t size), (file, size))
CALL("reserve", int, fallocate, (int file, int mode, off_t at, off_t size), (file, mode, at, size))
CALL("reserve", int, fallocate64, (int file, int mode, off64_t at, off64_t size), (file, mode, at, size))
CALL("sync", int, fsync, (int file), (file))
CALL("sync", int, fdatasync, (int file), (file))

int posix_fallocate(int file, off_t at, off_t size) {
  return file_fails("reserve", file) ? errno : REAL(posix_fallocate)(file, at, size);
}

int close(int file) {
  if (!*written(file)) return REAL(close)(file);
  *written(file) = false;
  const bool failed = file_fails("close", file);
  const int code = errno, closed = REAL(close)(file); /* a descriptor is gone, whatever close returns */
  if (failed) errno = code;
  return failed ? -1 : closed;
}

int fcntl(int file, int command, ...) {
  va_list rest;
  va_start(rest, command);
  void* argument = va_arg(rest, void*);
  va_end(rest);
  const bool locks = command == F_SETLK || command == F_SETLKW;
  const bool failed = locks && ((const struct flock*)argument)->l_type != F_UNLCK &&
                      file_fails(command == F_SETLK ? "lock" : "await", file);
  return failed ? -1 : REAL(fcntl)(file, command, argument);
}

int faccessat(int at, const char* path, int mode, int flags) {
  return (mode & W_OK) != 0 && fails("create", path) ? -1 : REAL(faccessat)(at, path, mode, flags);
}
int mkdir(const char* path, mode_t mode) { return fails("create", path) ? -1 : REAL(mkdir)(path, mode); }
int flock(int file, int operation) {
  return (operation & LOCK_UN) == 0 && file_fails("lock", file) ? -1 : REAL(flock)(file, operation);
}
int rename(const char* from, const char* to) { return fails("rename", to) ? -1 : REAL(rename)(from, to); }
int unlink(const char* path) { return fails("remove", path) ? -1 : REAL(unlink)(path); }
