// SPDX-License-Identifier: Apache-2.0
// Section "devices": every port, whether the transport would use it, and why not.
#include "tools/gemmar_info/devices.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "transport/hca_filter.h"
#include "transport/ib_device.h"
#include "transport/ib_query.h"

/* NCCL_BUFFSIZE of the simple protocol: what it registers for a channel and peer. */
#define PROBE_BYTES ((size_t)4 << 20)

static const char *state_name(enum ibv_port_state state)
{
    static const char *const names[] = {"none", "down", "init", "armed", "active", "deferred"};

    return (size_t)state < sizeof(names) / sizeof(names[0]) ? names[state] : "?";
}

/* Fills not_used as gemmar_ib_devices_open() would decide. */
static void decide(struct gemmar_info *d, const struct gemmar_hca_filter *filter,
                   struct gemmar_info_open_port *p)
{
    size_t room = sizeof(p->not_used);

    p->not_used[0] = '\0';
    if (d->knobs.ib_disable) {
        (void)snprintf(p->not_used, room, "NCCL_IB_DISABLE is 1");
    } else if (filter == NULL) {
        (void)snprintf(p->not_used, room, "NCCL_IB_HCA is not understood");
    } else if (!gemmar_hca_filter_match(filter, p->name, p->port)) {
        (void)snprintf(p->not_used, room, "not selected by NCCL_IB_HCA");
    } else if (p->attr.state != IBV_PORT_ACTIVE) {
        (void)snprintf(p->not_used, room, "not active");
        gemmar_info_problem(&d->report, false,
                            "check cable, switch and, on InfiniBand, the subnet manager; or leave "
                            "the port out with NCCL_IB_HCA",
                            "%s port %d is selected and its state is %s", p->name, p->port,
                            state_name(p->attr.state));
    } else if (p->gid < -1) {
        (void)snprintf(p->not_used, room, "no GID: %s", p->gid_why);
        gemmar_info_problem(
            &d->report, false,
            d->knobs.ib_gid_index >= 0
                ? "unset NCCL_IB_GID_INDEX, or take an index of the table above"
                : "give the interface an address, see that NCCL_IB_ADDR_RANGE holds it, and in a "
                  "container use the host's network",
            "%s port %d has no usable GID: %s", p->name, p->port, p->gid_why);
    }
}

static void tell_port(struct gemmar_info *d, const struct gemmar_info_open_port *p)
{
    struct gemmar_info_port *known = &d->port[d->ports];
    struct gemmar_info_report *r = &d->report;
    const char *bus;

    gemmar_info_row(r);
    gemmar_info_text(r, "device", "%s", p->name);
    gemmar_info_number(r, "port", p->port);
    gemmar_info_text(r, "state", "%s", state_name(p->attr.state));
    gemmar_info_text(r, "link", "%s",
                     p->attr.link_layer == IBV_LINK_LAYER_ETHERNET ? "RoCE" : "InfiniBand");
    gemmar_info_text(r, "speed", "%g Gb/s", gemmar_ib_port_speed(&p->attr) / 1e3);
    gemmar_info_number(r, "mtu", gemmar_ib_mtu_bytes(p->attr.active_mtu));
    gemmar_info_number(r, "lid", p->attr.lid);
    gemmar_info_text(r, "guid", "%016llx",
                     (unsigned long long)be64toh(p->device.node_guid) + p->port - 1);
    known->numa = gemmar_ib_device_place(p->name, known->path, sizeof(known->path));
    bus = strrchr(known->path, '/');
    gemmar_info_text(r, "pci", "%s", bus != NULL ? bus + 1 : "-");
    gemmar_info_detail(r, "path", "%s", known->path);
    gemmar_info_number(r, "numa", known->numa);
    gemmar_info_flag(r, "used", p->not_used[0] == '\0');
    gemmar_info_text(r, "why_not", "%s", p->not_used);
    (void)snprintf(known->device, sizeof(known->device), "%s", p->name);
    known->port = p->port;
    known->used = p->not_used[0] == '\0';
    d->ports++;
}

static void tell_refusal(struct gemmar_info *d, const char *name, int error)
{
    struct rlimit limit = {0, 0};

    (void)getrlimit(RLIMIT_MEMLOCK, &limit); /* cannot fail for one's own limits */
    if (error != ENOMEM || limit.rlim_cur == RLIM_INFINITY) {
        gemmar_info_problem(&d->report, true, "look at the kernel's log (dmesg)",
                            "%s cannot register %zu bytes of memory: %s", name, PROBE_BYTES,
                            strerror(error));
    } else if (!d->memlock_told) { /* one limit, however many devices */
        d->memlock_told = true;
        gemmar_info_problem(&d->report, true, GEMMAR_INFO_MEMLOCK_REMEDY,
                            "%s cannot register %zu bytes of memory: %s; RLIMIT_MEMLOCK is %llu "
                            "bytes",
                            name, PROBE_BYTES, strerror(error), (unsigned long long)limit.rlim_cur);
    }
}

/* Register what NCCL would: the limit on locked memory is felt here, whatever its number. Does the
 * device take dma-bufs? */
static bool probe(struct gemmar_info *d, const struct gemmar_info_open_port *p)
{
    struct ibv_pd *pd = d->verbs.alloc_pd(p->context);
    void *memory = MAP_FAILED;
    struct ibv_mr *mr = NULL;
    bool dmabuf = false;

    if (pd != NULL) {
        dmabuf = gemmar_ib_has_dmabuf(&d->verbs, pd);
        memory =
            mmap(NULL, PROBE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    if (memory != MAP_FAILED) {
        mr = d->verbs.reg_mr(pd, memory, PROBE_BYTES, IBV_ACCESS_LOCAL_WRITE);
    }
    if (mr == NULL) {
        tell_refusal(d, p->name, errno);
    } else {
        (void)d->verbs.dereg_mr(mr); /* the context is closed next */
    }
    if (memory != MAP_FAILED) {
        (void)munmap(memory, PROBE_BYTES); /* ours, so it cannot fail */
    }
    if (pd != NULL) {
        (void)d->verbs.dealloc_pd(pd); /* the context is closed next */
    }
    return dmabuf;
}

static void tell_device(struct gemmar_info *d, const struct gemmar_hca_filter *filter,
                        struct ibv_device *device)
{
    struct gemmar_info_open_port p = {.name = d->verbs.get_device_name(device)};
    bool probed = false, dmabuf = false;
    int rc;

    errno = 0;
    p.context = d->verbs.open_device(device);
    rc = p.context == NULL ? errno : d->verbs.query_device(p.context, &p.device);
    if (p.context == NULL || rc != 0) {
        gemmar_info_problem(&d->report, false,
                            "see that /dev/infiniband/uverbs* is there and may be read and written "
                            "(docker run --device /dev/infiniband), and raise the limit on files",
                            "%s cannot be opened: %s", p.name, strerror(rc < 0 ? -rc : rc));
    }
    for (int port = 1; p.context != NULL && rc == 0 && port <= p.device.phys_port_cnt &&
                       d->ports < GEMMAR_INFO_PORTS;
         port++) {
        p.port = (uint8_t)port;
        memset(&p.attr, 0, sizeof(p.attr));
        if (d->verbs.query_port(p.context, p.port, &p.attr) != 0) {
            gemmar_info_problem(&d->report, false, "look at the kernel's log (dmesg)",
                                "%s port %d cannot be queried", p.name, port);
            continue;
        }
        gemmar_info_gid_choose(d, &p);
        decide(d, filter, &p);
        tell_port(d, &p);
        if (p.not_used[0] == '\0' && !probed) {
            dmabuf = probe(d, &p);
            probed = true;
        }
        d->port[d->ports - 1].dmabuf = dmabuf;
    }
    if (p.context != NULL) {
        (void)d->verbs.close_device(p.context); /* nothing is left in it */
    }
}

static int sysfs_devices(const struct gemmar_info *d)
{
    char path[1024];
    DIR *folder;
    int count = 0;

    (void)snprintf(path, sizeof(path), "%s/sys/class/infiniband", d->root);
    folder = opendir(path);
    if (folder != NULL) {
        for (struct dirent *e = readdir(folder); e != NULL; e = readdir(folder)) {
            count += e->d_name[0] != '.';
        }
        (void)closedir(folder); /* it was only read */
    }
    return count;
}

static void tell_nothing_found(struct gemmar_info *d)
{
    int hidden = sysfs_devices(d);

    if (hidden != 0) {
        gemmar_info_problem(&d->report, true,
                            "install the provider libraries (Debian: ibverbs-providers) and make "
                            "/dev/infiniband available (docker run --device /dev/infiniband)",
                            "the kernel has %d RDMA device%s and libibverbs shows none", hidden,
                            hidden == 1 ? "" : "s");
    } else {
        gemmar_info_problem(&d->report, true,
                            "load the NIC's driver (mlx5_ib and ib_uverbs for ConnectX); to try "
                            "without a NIC, use softhca, which is not installed but in the build "
                            "folder (LD_LIBRARY_PATH=build/tools/softhca/lib, or "
                            "build/tools/gemmar_perf/gemmar_perf --hca soft)",
                            "there is no RDMA device");
    }
}

/* Something is there and nothing is used: either a reason was told above, which stops RDMA then, or
 * the filter leaves everything out. */
static void tell_nothing_used(struct gemmar_info *d)
{
    struct gemmar_info_report *r = &d->report;
    char names[512] = "";
    bool told = false;

    for (size_t i = 0; i < r->problems; i++) {
        if (strcmp(r->problem[i].section, "devices") == 0) {
            r->problem[i].stops = told = true;
        }
    }
    for (int i = 0; i < d->ports; i++) {
        size_t length = strlen(names);

        (void)snprintf(names + length, sizeof(names) - length, " %s:%d", d->port[i].device,
                       d->port[i].port);
    }
    if (d->knobs.ib_disable) {
        gemmar_info_problem(r, true, "unset it to use RDMA", "NCCL_IB_DISABLE is 1");
    } else if (!told) {
        gemmar_info_problem(
            r, true,
            "name one of these (a prefix, or = and the whole name; without :port it "
            "is any port), or unset it",
            "NCCL_IB_HCA '%s' selects none of:%s", d->knobs.ib_hca, names);
    }
}

static void judge(struct gemmar_info *d, int found)
{
    int used = 0;

    for (int i = 0; i < d->ports; i++) {
        used += d->port[i].used;
    }
    if (found == 0) {
        gemmar_info_note(&d->report, "No RDMA device.");
        tell_nothing_found(d);
    } else if (used == 0) {
        tell_nothing_used(d);
    }
}

static void tell_gids(struct gemmar_info *d, struct ibv_device **list, int found)
{
    struct gemmar_info_report *r = &d->report;
    int tables = 0;

    gemmar_info_section(r, "gids", "GID tables");
    for (int i = 0; i < found; i++) {
        struct gemmar_info_open_port p = {.name = d->verbs.get_device_name(list[i])};

        p.context = d->verbs.open_device(list[i]);
        for (int k = 0; p.context != NULL && k < d->ports; k++) {
            p.port = (uint8_t)d->port[k].port;
            memset(&p.attr, 0, sizeof(p.attr));
            if (strcmp(d->port[k].device, p.name) != 0 ||
                d->verbs.query_port(p.context, p.port, &p.attr) != 0 ||
                !gemmar_info_gid_needed(&p.attr)) {
                continue;
            }
            tables++;
            gemmar_info_gid_choose(d, &p);
            gemmar_info_gid_rows(d, &p);
        }
        if (p.context != NULL) {
            (void)d->verbs.close_device(p.context); /* nothing was made in it */
        }
    }
    if (tables == 0) {
        gemmar_info_note(r, d->ports == 0 ? "No port." : "No RoCE port: LIDs address the ports.");
    }
}

void gemmar_info_devices(struct gemmar_info *d)
{
    struct gemmar_info_report *r = &d->report;
    struct gemmar_hca_filter filter;
    struct ibv_device **list = NULL;
    char why[160];
    int found = 0;
    bool understood;

    gemmar_info_section(r, "devices", "Devices");
    if (!d->verbs_good) {
        gemmar_info_note(r, "Unknown without libibverbs.");
        return;
    }
    understood = gemmar_hca_filter_parse(d->knobs.ib_hca, &filter, why, sizeof(why)) == 0;
    if (!understood) {
        gemmar_info_problem(r, true, "correct it or unset it", "NCCL_IB_HCA '%s' %s",
                            d->knobs.ib_hca, why);
    }
    list = d->verbs.get_device_list(&found);
    found = list != NULL ? found : 0;
    for (int i = 0; i < found; i++) {
        tell_device(d, understood ? &filter : NULL, list[i]);
    }
    judge(d, found);
    tell_gids(d, list, found);
    if (list != NULL) {
        d->verbs.free_device_list(list);
    }
}
