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
 *   FAULT_JOURNAL  a file that gets every change of the ledger's files and every sync, so that a power cut can be played
 *                  afterwards. Syncs are not made then, only noted. Records, the bytes of a write behind its line:
 *                    w NAME AT LENGTH     bytes were written
 *                    t NAME LENGTH        the file was cut or grown to a length
 *                    u NAME               the file was removed
 *                    f NAME UPTO          a sync failed: what stands before UPTO and is not durable yet never will be. The
 *                                         kernel counts it as written, so that no later sync writes it
 *                    s NAME UPTO          what stands before UPTO in the journal is durable for this file; for the
 *                                         directory, whose name is a dot, that files were removed
 *   FAULT_SYNC_MICROS  how long a noted sync takes
 *   FAULT_NOSYNC   syncs of files whose name ends so succeed and do nothing
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
#include <sys/stat.h>
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
    path[length > 0 ? length : 0] = 0;
    if (!dir || length <= 0)
        return 0;
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


/* The journal. A change and its record are one step under this lock, so that a sync never covers half of one. */
static pthread_mutex_t paper = PTHREAD_MUTEX_INITIALIZER;
static int journal = -1;
static long long length;

static int ends(const char *text, const char *suffix)
{
    size_t all = strlen(text), end = strlen(suffix);
    return all >= end && strcmp(text + all - end, suffix) == 0;
}

/* The name of a path below our directory, if it is one of the ledger's. */
static const char *of_ledger(const char *path)
{
    const char *name = strrchr(path, '/') + 1;
    return strncmp(name, "ledger.db", 9) == 0 && !ends(name, "-shm") ? name : NULL;
}

/* The name of a file whose changes are noted, or nothing. The directory itself is called a dot. */
static const char *noted(int fd, char *path, size_t room)
{
    const char *dir = getenv("FAULT_DIR");
    if (!getenv("FAULT_JOURNAL"))
        return NULL;
    if (ours(fd, "*", path, room))
        return of_ledger(path);
    return dir && strcmp(path, dir) == 0 ? "." : NULL;
}

/* Opens the journal at its end. Called under the lock. */
static int opened(void)
{
    if (journal < 0) {
        journal = (int)syscall(SYS_openat, AT_FDCWD, getenv("FAULT_JOURNAL"),
                               O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        length = journal < 0 ? 0 : syscall(SYS_lseek, journal, 0, SEEK_END);
    }
    return journal >= 0;
}

/* Notes one record. Called under the lock. A journal that cannot be written would prove nothing: the end. */
static void note(const char *line, const void *bytes, size_t count)
{
    struct iovec parts[2] = {{(void *)line, strlen(line)}, {(void *)bytes, count}};
    ssize_t whole = (ssize_t)(strlen(line) + count);
    if (!opened() || syscall(SYS_writev, journal, parts, 2) != whole)
        abort();
    length += whole;
}

/* Writes, and notes what was written. at < 0 means where the file stands. */
static ssize_t put(int fd, const void *bytes, size_t count, off64_t at)
{
    char path[4096], line[300];
    int saved = errno;
    const char *name = noted(fd, path, sizeof path);
    errno = saved;
    if (!name)
        return at < 0 ? syscall(SYS_write, fd, bytes, count) : syscall(SYS_pwrite64, fd, bytes, count, at);
    pthread_mutex_lock(&paper);
    off64_t start = at < 0 ? syscall(SYS_lseek, fd, 0, SEEK_CUR) : at;
    ssize_t done = syscall(SYS_pwrite64, fd, bytes, count, start);
    saved = errno;
    if (done > 0) {
        snprintf(line, sizeof line, "w %s %lld %zd\n", name, (long long)start, done);
        note(line, bytes, (size_t)done);
        if (at < 0)
            syscall(SYS_lseek, fd, start + done, SEEK_SET);
    }
    pthread_mutex_unlock(&paper);
    errno = saved;
    return done;
}

/* Cuts or grows, and notes the length that came of it. */
static int resize(int fd, long call, int mode, off64_t at, off64_t count)
{
    char path[4096], line[300];
    const char *name = noted(fd, path, sizeof path);
    pthread_mutex_lock(&paper);
    int done = call == SYS_ftruncate ? (int)syscall(SYS_ftruncate, fd, at) :
                                       (int)syscall(SYS_fallocate, fd, mode, at, count);
    int saved = errno;
    struct stat about;
    if (name && done == 0 && fstat(fd, &about) == 0) {
        snprintf(line, sizeof line, "t %s %lld\n", name, (long long)about.st_size);
        note(line, "", 0);
    }
    pthread_mutex_unlock(&paper);
    errno = saved;
    return done;
}

/* Syncs. Under a journal it takes its time, and what was written before it began is durable when it ends. */
static int settle(int fd, long call)
{
    char path[4096], line[300];
    const char *name = noted(fd, path, sizeof path), *micros = getenv("FAULT_SYNC_MICROS");
    const char *forgets = getenv("FAULT_NOSYNC");
    if (!name)
        return (int)syscall(call, fd);
    pthread_mutex_lock(&paper);
    long long upto = opened() ? length : 0;
    pthread_mutex_unlock(&paper);
    long time = micros ? atol(micros) : 0;
    struct timespec wait = {time / 1000000, time % 1000000 * 1000};
    nanosleep(&wait, NULL);
    if (forgets && ends(name, forgets))
        return 0;
    pthread_mutex_lock(&paper);
    snprintf(line, sizeof line, "s %s %lld\n", name, upto);
    note(line, "", 0);
    pthread_mutex_unlock(&paper);
    return 0;
}

/* Notes a sync that failed. */
static void forsake(int fd)
{
    char path[4096], line[300];
    const char *name = noted(fd, path, sizeof path);
    if (!name)
        return;
    pthread_mutex_lock(&paper);
    snprintf(line, sizeof line, "f %s %lld\n", name, opened() ? length : 0);
    note(line, "", 0);
    pthread_mutex_unlock(&paper);
}

#define BAD(fd) \
    do { \
        if (fails("eio", __func__, fd)) { \
            forsake(fd); \
            errno = EIO; \
            return -1; \
        } \
    } while (0)

ssize_t write(int fd, const void *bytes, size_t count)
{
    FULL(fd);
    return put(fd, bytes, count, -1);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at)
{
    FULL(fd);
    return put(fd, bytes, count, at);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at)
{
    FULL(fd);
    return put(fd, bytes, count, at);
}

/* The ledger's files are never written so; if they were, the journal would miss it. */
ssize_t writev(int fd, const struct iovec *parts, int count)
{
    char path[4096];
    FULL(fd);
    if (noted(fd, path, sizeof path))
        abort();
    return syscall(SYS_writev, fd, parts, count);
}

int ftruncate(int fd, off_t length)
{
    FULL(fd);
    return resize(fd, SYS_ftruncate, 0, length, 0);
}

int ftruncate64(int fd, off64_t length)
{
    FULL(fd);
    return resize(fd, SYS_ftruncate, 0, length, 0);
}

int fallocate(int fd, int mode, off_t at, off_t length)
{
    FULL(fd);
    return resize(fd, SYS_fallocate, mode, at, length);
}

int fallocate64(int fd, int mode, off64_t at, off64_t length)
{
    FULL(fd);
    return resize(fd, SYS_fallocate, mode, at, length);
}

int posix_fallocate(int fd, off_t at, off_t length)
{
    if (fails("enospc", __func__, fd))
        return ENOSPC;
    return resize(fd, SYS_fallocate, 0, at, length) < 0 ? errno : 0;
}

int posix_fallocate64(int fd, off64_t at, off64_t length)
{
    if (fails("enospc", __func__, fd))
        return ENOSPC;
    return resize(fd, SYS_fallocate, 0, at, length) < 0 ? errno : 0;
}

int unlink(const char *path)
{
    const char *dir = getenv("FAULT_DIR"), *name = NULL;
    char line[300];
    if (dir && getenv("FAULT_JOURNAL") && strncmp(path, dir, strlen(dir)) == 0 && path[strlen(dir)] == '/')
        name = of_ledger(path);
    pthread_mutex_lock(&paper);
    int done = (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
    int saved = errno;
    if (name && done == 0) {
        snprintf(line, sizeof line, "u %s\n", name);
        note(line, "", 0);
    }
    pthread_mutex_unlock(&paper);
    errno = saved;
    return done;
}

int fsync(int fd)
{
    BAD(fd);
    return settle(fd, SYS_fsync);
}

int fdatasync(int fd)
{
    BAD(fd);
    return settle(fd, SYS_fdatasync);
}
