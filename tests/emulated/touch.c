// SPDX-License-Identifier: Apache-2.0
// Touches memory and prints its placement: `touch MIB [FILE [THREADS]]` prints one JSON document.
//
// With FILE it holds the memory with THREADS threads until the file exists. It runs in the guest under numactl or another
// launcher, and is in C because Python needs a second to start in the emulator. "pages" counts the 4 KiB pages of one
// mapping of MIB mebibytes on each NUMA node.

#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, NODES = 64, THREADS = 1024 };

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void *wait_for_the_end(void *unused)
{
    for (;;)
        pause();
    return unused;
}

static void print_pages(uintptr_t begin, size_t size)
{
    unsigned long pages[NODES] = {0}, start, count;
    unsigned node;
    char line[4096];
    FILE *maps = fopen("/proc/self/numa_maps", "r");

    if (maps == NULL)
        fail("/proc/self/numa_maps");
    while (fgets(line, sizeof line, maps) != NULL) {
        if (sscanf(line, "%lx", &start) != 1 || start < begin || start >= begin + size)
            continue;
        for (char *field = strstr(line, " N"); field != NULL; field = strstr(field + 1, " N"))
            if (sscanf(field, " N%u=%lu", &node, &count) == 2 && node < NODES)
                pages[node] += count;
    }
    fclose(maps);
    const char *separator = "";
    printf("{\"pages\": {");
    for (node = 0; node < NODES; node++)
        if (pages[node] > 0) {
            printf("%s\"%u\": %lu", separator, node, pages[node]);
            separator = ", ";
        }
}

static void print_pus(void)
{
    const char *separator = "";
    cpu_set_t pus;

    if (sched_getaffinity(0, sizeof pus, &pus) != 0)
        fail("sched_getaffinity");
    printf("}, \"pus\": [");
    for (int pu = 0; pu < CPU_SETSIZE; pu++)
        if (CPU_ISSET(pu, &pus)) {
            printf("%s%d", separator, pu);
            separator = ", ";
        }
    printf("]}\n");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    size_t size = argc > 1 ? strtoul(argv[1], NULL, 10) << 20 : 0;
    int threads = argc > 3 ? atoi(argv[3]) : 1;
    struct timespec moment = {0, 20000000};
    pthread_t other;

    if (size == 0 || threads < 1 || threads > THREADS) {
        fprintf(stderr, "usage: touch MIB [FILE [THREADS]]\n");
        return 2;
    }
    // Without an inaccessible page on both sides, the kernel may merge the mapping with its neighbours.
    char *first = mmap(NULL, size + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (first == MAP_FAILED || mprotect(first + PAGE, size, PROT_READ | PROT_WRITE) != 0)
        fail("mmap");
    memset(first + PAGE, 1, size);
    for (int started = 1; started < threads; started++)
        if (pthread_create(&other, NULL, wait_for_the_end, NULL) != 0)
            fail("pthread_create");
    print_pages((uintptr_t)first + PAGE, size);
    print_pus();
    while (argc > 2 && access(argv[2], F_OK) != 0)
        nanosleep(&moment, NULL);
    return 0;
}
