/* SPDX-License-Identifier: Apache-2.0 */
/* Lets the Nth call of the C library on a file below a folder fail: open, write, fsync, rename, close.
 *
 * Preload it, and call failing_calls_arm. A call of close that fails closes the descriptor, as the kernel does. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_long left;
static int error;
static char below[PATH_MAX], failed[PATH_MAX + 16];

void failing_calls_arm(long nth, int number, const char *folder)
{
    error = number;
    failed[0] = '\0';
    snprintf(below, sizeof below, "%s/", folder);
    atomic_store(&left, nth);
}

/* What failed, an empty text if there were fewer calls. No further call fails. */
const char *failing_calls_disarm(void)
{
    atomic_store(&left, 0);
    return failed;
}

static int fails(const char *call, const char *path)
{
    if (atomic_load(&left) <= 0 || strncmp(path, below, strlen(below)) != 0)
        return 0;
    if (atomic_fetch_sub(&left, 1) != 1)
        return 0;
    snprintf(failed, sizeof failed, "%s %s", call, path);
    errno = error;
    return 1;
}

static int fails_on(const char *call, int descriptor)
{
    char link[64], path[PATH_MAX];
    if (atomic_load(&left) <= 0)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0)
        return 0;
    path[size] = '\0';
    return fails(call, path);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define OPEN(name)                                                  \
    int name(const char *path, int flags, ...)                      \
    {                                                               \
        va_list rest;                                               \
        va_start(rest, flags);                                      \
        mode_t mode = va_arg(rest, mode_t);                         \
        va_end(rest);                                               \
        return fails("open", path) ? -1 : REAL(name)(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                \
    int name(int folder, const char *path, int flags, ...)          \
    {                                                               \
        va_list rest;                                               \
        va_start(rest, flags);                                      \
        mode_t mode = va_arg(rest, mode_t);                         \
        va_end(rest);                                               \
        return fails("open", path) ? -1 : REAL(name)(folder, path, flags, mode); \
    }
OPENAT(openat)
OPENAT(openat64)

ssize_t write(int descriptor, const void *data, size_t size)
{
    return fails_on("write", descriptor) ? -1 : REAL(write)(descriptor, data, size);
}

ssize_t writev(int descriptor, const struct iovec *parts, int count)
{
    return fails_on("write", descriptor) ? -1 : REAL(writev)(descriptor, parts, count);
}

int fsync(int descriptor)
{
    return fails_on("fsync", descriptor) ? -1 : REAL(fsync)(descriptor);
}

int fdatasync(int descriptor)
{
    return fails_on("fsync", descriptor) ? -1 : REAL(fdatasync)(descriptor);
}

int rename(const char *from, const char *to)
{
    return fails("rename", from) ? -1 : REAL(rename)(from, to);
}

int renameat(int source, const char *from, int target, const char *to)
{
    return fails("rename", from) ? -1 : REAL(renameat)(source, from, target, to);
}

int close(int descriptor)
{
    int is_failed = fails_on("close", descriptor);
    int status = REAL(close)(descriptor);
    if (is_failed) {
        errno = error;
        return -1;
    }
    return status;
}
