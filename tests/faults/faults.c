/* Kills a process at its n-th call that writes below a folder, or lets that call fail: an LD_PRELOAD library.

   `faults_arm` starts counting; a process under test calls it by ctypes after a fork. A process that is started anew
   is armed by the variable MARLNB_FAULTS="program folder nth error flags log", if its command line contains `program`
   and it is the first such process, which creates the file `log`. Otherwise every call goes through. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { STAYS = 1, TORN = 2, JUMP = 4, COUNTED = 8 }; /* flags of faults_arm */
enum { OPEN, CREATE, WRITE, GROW, SYNC, REMOVE, RENAME }; /* kinds of calls */

static char folder[PATH_MAX];
static size_t folder_length;
static long nth, count, jump_s, ticks;
static time_t started_s; /* 0: the clock is the machine's */
static int error_number, flags, trace = -1;

/* The n-th call below `path` is the last: the process is killed where `error` is 0, else the call fails with it.
   STAYS: later calls fail as well, as far as such a disk refuses them. TORN: half of a write is written first.
   JUMP: the call succeeds, and from then on the clock is `error` seconds early. COUNTED: each look at the
   time of day is a microsecond later than the one before, so that a command writes the same times whenever it runs; the
   clock of waits is the machine's, or a wait would never end. `log`: each call is written there. */
void faults_arm(const char *path, long n, int error, int options, int log) {
  snprintf(folder, sizeof folder, "%s", path);
  folder_length = strlen(folder);
  nth = n, count = 0, error_number = error, flags = options, trace = log, jump_s = 0, ticks = 0;
  started_s = options & COUNTED ? 1700000000 : 0;
}

long faults_count(void) { return count; }

__attribute__((constructor)) static void arm_from_environment(void) {
  const char *text = getenv("MARLNB_FAULTS");
  char program[256], path[PATH_MAX], log[PATH_MAX], line[8192] = "";
  long n;
  int error, options;
  if (!text || sscanf(text, "%255s %4095s %ld %d %d %4095s", program, path, &n, &error, &options, log) != 6) return;
  int file = open("/proc/self/cmdline", O_RDONLY);
  ssize_t length = read(file, line, sizeof line - 1);
  close(file);
  for (ssize_t i = 0; i < length; i++)
    if (!line[i]) line[i] = ' ';
  if (!strstr(line, program)) return;
  int calls = open(log, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
  if (calls >= 0) faults_arm(path, n, error, options, calls);
}

static int is_below(const char *path) {
  return folder_length && !strncmp(path, folder, folder_length) && (path[folder_length] == '/' || !path[folder_length]);
}

static const char *path_of_fd(int fd, char *buffer) {
  char name[64];
  snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(name, buffer, PATH_MAX - 1);
  buffer[length < 0 ? 0 : length] = 0;
  return buffer;
}

static const char *path_at(int directory, const char *name, char *buffer) {
  if (name[0] == '/') return name;
  char base[PATH_MAX];
  if (directory != AT_FDCWD) path_of_fd(directory, base);
  else if (!getcwd(base, sizeof base)) base[0] = 0;
  snprintf(buffer, PATH_MAX, "%.2000s/%.2000s", base, name);
  return buffer;
}

/* Whether a disk with this error refuses such a call after its first refusal. */
static int refuses(int kind) {
  if (error_number == EROFS) return 1;
  if (error_number == EIO) return kind == WRITE || kind == GROW || kind == SYNC;
  return kind == GROW || (error_number == EDQUOT && kind == CREATE);
}

/* 0: the call goes through; else the error it fails with. `half` is set where half of a write comes first. */
static int fault(int kind, const char *call, const char *path, int *half) {
  if (!is_below(path)) return 0;
  long number = __atomic_add_fetch(&count, 1, __ATOMIC_SEQ_CST);
  if (trace >= 0) dprintf(trace, "%s %s\n", call, path + folder_length);
  if (!nth || number < nth) return 0;
  if (flags & JUMP) return jump_s = error_number, 0;
  if (half && number == nth && (flags & TORN)) return *half = 1, error_number;
  if (number == nth && !error_number) raise(SIGKILL);
  if (number == nth && kind != REMOVE) return error_number;
  return (flags & STAYS) && refuses(kind) ? error_number : 0;
}

#define REAL(name) \
  static __typeof__(name) *real; \
  if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)
#define FAIL(error) return errno = (error), -1

static int open_kind(const char *path, int how) {
  if (!(how & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC))) return -1;
  return (how & O_CREAT) && access(path, F_OK) ? CREATE : OPEN;
}

#define OPENING(name) \
  int name(const char *path, int how, ...) { \
    REAL(name); \
    va_list rest; \
    va_start(rest, how); \
    mode_t mode = how & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
    va_end(rest); \
    char buffer[PATH_MAX]; \
    int kind = folder_length ? open_kind(path, how) : -1; \
    int error = kind < 0 ? 0 : fault(kind, "open", path_at(AT_FDCWD, path, buffer), NULL); \
    if (error) FAIL(error); \
    return real(path, how, mode); \
  }
OPENING(open)
OPENING(open64)

#define OPENING_AT(name) \
  int name(int directory, const char *path, int how, ...) { \
    REAL(name); \
    va_list rest; \
    va_start(rest, how); \
    mode_t mode = how & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
    va_end(rest); \
    char buffer[PATH_MAX]; \
    const char *full = folder_length ? path_at(directory, path, buffer) : path; \
    int kind = folder_length ? open_kind(full, how) : -1; \
    int error = kind < 0 ? 0 : fault(kind, "openat", full, NULL); \
    if (error) FAIL(error); \
    return real(directory, path, how, mode); \
  }
OPENING_AT(openat)
OPENING_AT(openat64)

/* A write of bytes that the disk has room for already is none that a full disk refuses. */
static int write_kind(int fd, off_t stop) {
  struct stat status;
  if (fstat(fd, &status) || !S_ISREG(status.st_mode)) return WRITE;
  return stop > (off_t)status.st_blocks * 512 ? GROW : WRITE;
}

static off_t end_of(int fd, size_t length) {
  struct stat status;
  off_t position = lseek(fd, 0, SEEK_CUR);
  if (position >= 0 && fcntl(fd, F_GETFL) & O_APPEND && !fstat(fd, &status)) position = status.st_size;
  return position + (off_t)length;
}

/* Writes half where that is asked for, then dies or reports what was written. */
#define WRITING(call, stop, part) \
  char buffer[PATH_MAX]; \
  int half = 0; \
  if (folder_length) { \
    int error = fault(write_kind(fd, stop), call, path_of_fd(fd, buffer), &half); \
    if (half) { \
      ssize_t written = part; \
      if (!error) raise(SIGKILL); \
      return written; \
    } \
    if (error) FAIL(error); \
  }

ssize_t write(int fd, const void *data, size_t length) {
  REAL(write);
  WRITING("write", end_of(fd, length), real(fd, data, (length + 1) / 2))
  return real(fd, data, length);
}
#define PWRITE(name) \
  ssize_t name(int fd, const void *data, size_t length, __off64_t offset) { \
    REAL(name); \
    WRITING("pwrite", offset + (off_t)length, real(fd, data, (length + 1) / 2, offset)) \
    return real(fd, data, length, offset); \
  }
PWRITE(pwrite)
PWRITE(pwrite64)
ssize_t writev(int fd, const struct iovec *parts, int n) {
  REAL(writev);
  size_t length = 0;
  for (int i = 0; i < n; i++) length += parts[i].iov_len;
  WRITING("writev", end_of(fd, length), real(fd, parts, (n + 1) / 2))
  return real(fd, parts, n);
}
#define SENDFILE(name, offset_type) \
  ssize_t name(int fd, int from, offset_type *offset, size_t length) { \
    REAL(name); \
    struct stat status; \
    if (!fstat(from, &status) && (size_t)status.st_size < length) length = status.st_size; \
    WRITING("sendfile", end_of(fd, length), real(fd, from, offset, (length + 1) / 2)) \
    return real(fd, from, offset, length); \
  }
ssize_t sendfile(int, int, off_t *, size_t);
ssize_t sendfile64(int, int, __off64_t *, size_t);
SENDFILE(sendfile, off_t)
SENDFILE(sendfile64, __off64_t)

#define TRUNCATE(name) \
  int name(int fd, __off64_t length) { \
    REAL(name); \
    char buffer[PATH_MAX]; \
    struct stat status; \
    int grows = folder_length && !fstat(fd, &status) && length > status.st_size; \
    int error = folder_length ? fault(grows ? OPEN : REMOVE, "ftruncate", path_of_fd(fd, buffer), NULL) : 0; \
    if (error) FAIL(error); \
    return real(fd, length); \
  }
TRUNCATE(ftruncate)
TRUNCATE(ftruncate64)

#define FALLOCATE(name) \
  int name(int fd, __off64_t offset, __off64_t length) { \
    REAL(name); \
    char buffer[PATH_MAX]; \
    int error = folder_length \
      ? fault(write_kind(fd, offset + length), "fallocate", path_of_fd(fd, buffer), NULL) : 0; \
    return error ? error : real(fd, offset, length); \
  }
FALLOCATE(posix_fallocate)
FALLOCATE(posix_fallocate64)

#define SYNCING(name) \
  int name(int fd) { \
    REAL(name); \
    char buffer[PATH_MAX]; \
    int error = folder_length ? fault(SYNC, #name, path_of_fd(fd, buffer), NULL) : 0; \
    if (error) FAIL(error); \
    return real(fd); \
  }
SYNCING(fsync)
SYNCING(fdatasync)

#define ON_PATH(kind, name, directory, path, declaration, ...) \
  int name declaration { \
    REAL(name); \
    char buffer[PATH_MAX]; \
    int error = folder_length ? fault(kind, #name, path_at(directory, path, buffer), NULL) : 0; \
    if (error) FAIL(error); \
    return real(__VA_ARGS__); \
  }
ON_PATH(REMOVE, unlink, AT_FDCWD, path, (const char *path), path)
ON_PATH(REMOVE, rmdir, AT_FDCWD, path, (const char *path), path)
ON_PATH(REMOVE, unlinkat, at, path, (int at, const char *path, int how), at, path, how)
ON_PATH(GROW, mkdir, AT_FDCWD, path, (const char *path, mode_t mode), path, mode)
ON_PATH(GROW, mkdirat, at, path, (int at, const char *path, mode_t mode), at, path, mode)
ON_PATH(RENAME, rename, AT_FDCWD, to, (const char *from, const char *to), from, to)
ON_PATH(RENAME, renameat, at, to, (int before, const char *from, int at, const char *to), before, from, at, to)
ON_PATH(CREATE, link, AT_FDCWD, to, (const char *from, const char *to), from, to)
ON_PATH(CREATE, linkat, at, to, (int before, const char *from, int at, const char *to, int how), before, from, at, to,
        how)
ON_PATH(CREATE, symlink, AT_FDCWD, to, (const char *from, const char *to), from, to)

int clock_gettime(clockid_t which, struct timespec *now) {
  REAL(clock_gettime);
  if (started_s && which == CLOCK_REALTIME) {
    long tick = __atomic_add_fetch(&ticks, 1, __ATOMIC_SEQ_CST);
    now->tv_sec = started_s + tick / 1000000 - jump_s;
    now->tv_nsec = tick % 1000000 * 1000;
    return 0;
  }
  int result = real(which, now);
  if (!result && which == CLOCK_REALTIME) now->tv_sec -= jump_s;
  return result;
}

/* HDF5 asks here for the times of its objects. */
int gettimeofday(struct timeval *now, void *zone) {
  struct timespec precise;
  clock_gettime(CLOCK_REALTIME, &precise);
  now->tv_sec = precise.tv_sec, now->tv_usec = precise.tv_nsec / 1000;
  return (void)zone, 0;
}
