/*
 * A disk that fails on demand, for one process, by LD_PRELOAD. Only files below one directory are touched.
 *
 *   FAULT_DIR      the directory, as the kernel spells it
 *   FAULT_CONTROL  a file with one line, read before every call: MODE SKIP TIMES SUFFIX
 *                    MODE    off     nothing fails
 *                            enospc  writes, truncations and allocations fail with ENOSPC
 *                            eio     fsync and fdatasync fail with EIO
 *                            slow    writes, truncations and allocations wait SKIP microseconds, and succeed
 *                    SKIP    matching calls that still succeed after the line changed
 *                    TIMES   matching calls that fail after that; 0 for all of them
 *                    SUFFIX  only files whose name ends so; * for all
 *   FAULT_LOG      a file that gets a line for every call that was made to fail, and for the first that had to wait
 *
 * Calls go to the kernel directly, so nothing here is caught by itself.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define LINE 256

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char last[LINE];
static long seen;

/* Reads the control line. Whoever writes it replaces the whole file at once. */
static int control(char line[LINE])
{
    const char *path = getenv("FAULT_CONTROL");
    int fd = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0) : -1;
    if (fd < 0)
        return 0;
    ssize_t length = syscall(SYS_read, fd, line, LINE - 1);
    syscall(SYS_close, fd);
    line[length > 0 ? length : 0] = 0;
    return length > 0;
}

/* Whether the file behind fd is one of ours; its name goes to path. */
static int ours(int fd, const char *suffix, char *path, size_t room)
{
    const char *dir = getenv("FAULT_DIR");
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, path, room - 1);
    if (!dir || length <= 0)
        return 0;
    path[length] = 0;
    size_t start = strlen(dir), end = strlen(suffix);
    if (strncmp(path, dir, start) != 0 || path[start] != '/')
        return 0;
    if (strcmp(suffix, "*") == 0)
        return 1;
    return (size_t)length >= end && strcmp(path + length - end, suffix) == 0;
}

static void tell(const char *mode, const char *call, const char *path)
{
    const char *log = getenv("FAULT_LOG");
    char line[4500];
    int length = snprintf(line, sizeof line, "%s %s %s\n", mode, call, path);
    int fd = log ? (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (fd < 0)
        return;
    syscall(SYS_write, fd, line, (size_t)length);
    syscall(SYS_close, fd);
}

/* Whether the mode is about calls of this kind: "enospc" for writes, "eio" for syncs. */
static int about(const char *mode, const char *kind)
{
    return strcmp(mode, kind) == 0 || (strcmp(mode, "slow") == 0 && strcmp(kind, "enospc") == 0);
}

/* Whether this call is to fail now. One that only has to wait waits here. */
static int fails(const char *kind, const char *call, int fd)
{
    int saved = errno;
    char line[LINE], mode[LINE], suffix[LINE] = "*", path[4096];
    long skip = 0, times = 0;
    int hit = 0;
    if (control(line) && sscanf(line, "%255s %ld %ld %255s", mode, &skip, &times, suffix) >= 1 &&
        about(mode, kind) && ours(fd, suffix, path, sizeof path)) {
        pthread_mutex_lock(&lock);
        if (strcmp(line, last) != 0) {
            memcpy(last, line, sizeof last);
            seen = 0;
        }
        seen++;
        int slow = strcmp(mode, "slow") == 0, first = seen == 1;
        hit = !slow && seen > skip && (times == 0 || seen <= skip + times);
        pthread_mutex_unlock(&lock);
        if (hit || (slow && first))
            tell(mode, call, path);
        if (slow) {
            struct timespec wait = {skip / 1000000, skip % 1000000 * 1000};
            nanosleep(&wait, NULL);
        }
    }
    errno = saved;
    return hit;
}

#define FULL(fd) \
    do { \
        if (fails("enospc", __func__, fd)) { \
            errno = ENOSPC; \
            return -1; \
        } \
    } while (0)

#define BAD(fd) \
    do { \
        if (fails("eio", __func__, fd)) { \
            errno = EIO; \
            return -1; \
        } \
    } while (0)

ssize_t write(int fd, const void *bytes, size_t count)
{
    FULL(fd);
    return syscall(SYS_write, fd, bytes, count);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at)
{
    FULL(fd);
    return syscall(SYS_pwrite64, fd, bytes, count, at);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at)
{
    FULL(fd);
    return syscall(SYS_pwrite64, fd, bytes, count, at);
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    FULL(fd);
    return syscall(SYS_writev, fd, parts, count);
}

int ftruncate(int fd, off_t length)
{
    FULL(fd);
    return (int)syscall(SYS_ftruncate, fd, length);
}

int ftruncate64(int fd, off64_t length)
{
    FULL(fd);
    return (int)syscall(SYS_ftruncate, fd, length);
}

int fallocate(int fd, int mode, off_t at, off_t length)
{
    FULL(fd);
    return (int)syscall(SYS_fallocate, fd, mode, at, length);
}

int fallocate64(int fd, int mode, off64_t at, off64_t length)
{
    FULL(fd);
    return (int)syscall(SYS_fallocate, fd, mode, at, length);
}

int posix_fallocate(int fd, off_t at, off_t length)
{
    if (fails("enospc", __func__, fd))
        return ENOSPC;
    return syscall(SYS_fallocate, fd, 0, at, length) < 0 ? errno : 0;
}

int posix_fallocate64(int fd, off64_t at, off64_t length)
{
    if (fails("enospc", __func__, fd))
        return ENOSPC;
    return syscall(SYS_fallocate, fd, 0, at, length) < 0 ? errno : 0;
}

int fsync(int fd)
{
    BAD(fd);
    return (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd)
{
    BAD(fd);
    return (int)syscall(SYS_fdatasync, fd);
}
