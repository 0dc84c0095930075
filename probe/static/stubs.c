// SPDX-License-Identifier: Apache-2.0
// Linked into the static program only: what hwloc's static library takes from libraries that exist only as shared
// ones.
//
// hwloc reads the names of I/O devices from udev and opens plugins for devices; no placement needs either. hwloc
// continues without udev if udev_new() returns NULL, and without plugins if dlopen() does. A static program must
// not load the host's plugins, which need another C library.
#include <stddef.h>

struct udev;
struct udev_device;

struct udev *udev_new(void);
struct udev *udev_unref(struct udev *udev);
struct udev_device *udev_device_new_from_subsystem_sysname(struct udev *udev, const char *subsystem,
                                                           const char *name);
const char *udev_device_get_property_value(struct udev_device *device, const char *key);
struct udev_device *udev_device_unref(struct udev_device *device);
void *dlopen(const char *path, int flags);
void *dlsym(void *handle, const char *name);
int dlclose(void *handle);
char *dlerror(void);

struct udev *udev_new(void)
{
    return NULL;
}

struct udev *udev_unref(struct udev *udev)
{
    return udev;
}

struct udev_device *udev_device_new_from_subsystem_sysname(struct udev *udev, const char *subsystem,
                                                           const char *name)
{
    (void)udev, (void)subsystem, (void)name;
    return NULL;
}

const char *udev_device_get_property_value(struct udev_device *device, const char *key)
{
    (void)device, (void)key;
    return NULL;
}

struct udev_device *udev_device_unref(struct udev_device *device)
{
    return device;
}

void *dlopen(const char *path, int flags)
{
    (void)path, (void)flags;
    return NULL;
}

void *dlsym(void *handle, const char *name)
{
    (void)handle, (void)name;
    return NULL;
}

int dlclose(void *handle)
{
    (void)handle;
    return 0;
}

char *dlerror(void)
{
    static char reason[] = "plugins are not supported";
    return reason;
}
