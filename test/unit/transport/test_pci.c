// SPDX-License-Identifier: Apache-2.0
// Places of PCI devices, and their distance in NCCL's terms.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test/unit/tools/tap.h"
#include "transport/pci.h"

#define ROOT   "/sys/devices/pci0000:15/0000:15:01.0"
#define SWITCH ROOT "/0000:16:00.0"

static const char *between(const char *a, int numa_a, const char *b, int numa_b)
{
    const char *there = gemmar_pci_distance_name(gemmar_pci_distance(a, numa_a, b, numa_b));
    const char *back = gemmar_pci_distance_name(gemmar_pci_distance(b, numa_b, a, numa_a));

    ck_assert_str_eq(there, back);
    return there;
}

START_TEST(one_switch_is_pix)
{
    ck_assert_str_eq(
        between(SWITCH "/0000:17:00.0/0000:18:00.0", 0, SWITCH "/0000:17:01.0/0000:19:00.0", 0),
        "PIX");
    /* functions of one device below a root port */
    ck_assert_str_eq(between(ROOT "/0000:16:00.0", 0, ROOT "/0000:16:00.1", 0), "PIX");
}
END_TEST

START_TEST(two_switches_are_pxb)
{
    ck_assert_str_eq(between(SWITCH "/0000:17:00.0/0000:18:00.0", 0,
                             SWITCH "/0000:17:01.0/0000:19:00.0/0000:1a:00.0/0000:1b:00.0", 0),
                     "PXB");
}
END_TEST

START_TEST(host_bridges_and_nodes)
{
    const char *a = SWITCH "/0000:17:00.0/0000:18:00.0";

    ck_assert_str_eq(between(a, 0, "/sys/devices/pci0000:15/0000:15:02.0/0000:1c:00.0", 0), "PHB");
    ck_assert_str_eq(between(a, 0, "/sys/devices/pci0000:27/0000:27:01.0/0000:28:00.0", 0), "NODE");
    ck_assert_str_eq(between(a, 0, "/sys/devices/pci0000:97/0000:97:01.0/0000:98:00.0", 1), "SYS");
    ck_assert_str_eq(between(a, -1, "/sys/devices/pci0000:97/0000:97:01.0/0000:98:00.0", -1),
                     "SYS");
    /* the domain counts: 0000:15 is not 0001:15 */
    ck_assert_str_eq(between(a, 0, "/sys/devices/pci0001:15/0001:15:01.0/0001:16:00.0", 1), "SYS");
}
END_TEST

START_TEST(hidden_paths_are_not_guessed)
{
    ck_assert_str_eq(between(SWITCH, 0, "", 0), "?");
    ck_assert_str_eq(between("/sys/devices/virtual/infiniband/rxe0", 0, SWITCH, 0), "?");
}
END_TEST

/* A sysfs of one device, below `root`. */
static void make_sysfs(const char *root)
{
    static const char *const folders[] = {
        "/sys",
        "/sys/devices",
        "/sys/bus",
        "/sys/devices/pci0000:15",
        "/sys/bus/pci",
        "/sys/devices/pci0000:15/0000:1b:00.0",
        "/sys/bus/pci/devices",
    };
    char path[512];
    FILE *file;

    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        (void)snprintf(path, sizeof(path), "%s%s", root, folders[i]);
        ck_assert_int_eq(mkdir(path, 0700), 0);
    }
    (void)snprintf(path, sizeof(path), "%s/sys/devices/pci0000:15/0000:1b:00.0/numa_node", root);
    file = fopen(path, "we");
    ck_assert_ptr_nonnull(file);
    (void)fputs("1\n", file);
    (void)fclose(file);
    (void)snprintf(path, sizeof(path), "%s/sys/bus/pci/devices/0000:1b:00.0", root);
    ck_assert_int_eq(symlink("../../../devices/pci0000:15/0000:1b:00.0", path), 0);
}

START_TEST(a_device_is_found)
{
    char root[] = "/tmp/test_pci_XXXXXX", command[64];
    struct gemmar_pci_place place;

    ck_assert_ptr_nonnull(mkdtemp(root));
    make_sysfs(root);
    gemmar_pci_find(root, "0000:1B:00.0", &place); /* CUDA writes capitals */
    ck_assert_ptr_nonnull(strstr(place.path, "/sys/devices/pci0000:15/0000:1b:00.0"));
    ck_assert_int_eq(place.numa_node, 1);
    ck_assert_str_eq(between(place.path, 1, "/sys/devices/pci0000:15/0000:15:02.0", 1), "PHB");
    gemmar_pci_find(root, "0000:99:00.0", &place);
    ck_assert_str_eq(place.path, "");
    ck_assert_int_eq(place.numa_node, -1);
    (void)snprintf(command, sizeof(command), "rm -r %s", root);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {one_switch_is_pix,      two_switches_are_pxb,
                                  host_bridges_and_nodes, hidden_paths_are_not_guessed,
                                  a_device_is_found,      NULL};

    return tap_run("pci", tests);
}
