// SPDX-License-Identifier: Apache-2.0
// Sections "gpudirect" and "distances": by which route a NIC reaches GPU memory, and how far it is.
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "transport/pci.h"
#include "tools/gemmar_info/doctor.h"
#include "transport/ib_query.h"

/* By which module a NIC takes GPU memory by its address, with its version where it tells it. */
static bool find_peer_memory(const struct gemmar_info *d, char *text, size_t bytes)
{
    char path[256], file[sizeof(path) + 16], version[64];
    size_t n;

    if (!gemmar_ib_peer_memory(d->root, path, sizeof(path))) {
        return false;
    }
    n = strlen(path);
    (void)snprintf(file, sizeof(file), "%s%s", path,
                   n > 8 && strcmp(path + n - 8, "/version") == 0 ? "" : "/version");
    (void)gemmar_info_read_line(d, file, version, sizeof(version));
    (void)snprintf(text, bytes, "%s%s%s", path, version[0] != '\0' ? ", version " : "", version);
    return true;
}

/* -1 when no driver tells. */
static int any_gpu_dmabuf(const struct gemmar_info *d)
{
    int have = -1;

    for (int i = 0; i < d->gpus; i++) {
        have = d->gpu[i].dmabuf > have ? d->gpu[i].dmabuf : have;
    }
    return have;
}

static void tell_routes(struct gemmar_info *d, bool peer)
{
    struct gemmar_info_report *r = &d->report;
    int gpu_dmabuf = any_gpu_dmabuf(d);

    for (int i = 0; i < d->ports; i++) {
        const struct gemmar_info_port *p = &d->port[i];
        bool dmabuf = p->dmabuf && gpu_dmabuf == 1;

        if (!p->used) {
            continue;
        }
        gemmar_info_row(r);
        gemmar_info_text(r, "device", "%s", p->device);
        gemmar_info_number(r, "port", p->port);
        gemmar_info_flag(r, "dma_buf", p->dmabuf);
        gemmar_info_text(r, "route", "%s",
                         d->gpus == 0 ? "no GPU"
                         : dmabuf     ? "dma-buf"
                         : peer       ? "peer memory"
                                      : "none");
        if (d->gpus != 0 && !dmabuf && !peer) {
            gemmar_info_problem(r, false,
                                "modprobe nvidia-peermem, or use a kernel (5.12 or newer) and the "
                                "open NVIDIA kernel modules, which have dma-buf",
                                "%s cannot reach GPU memory (dma-buf: NIC %s, GPU %s; no peer "
                                "memory): data goes through host memory",
                                p->device, p->dmabuf ? "yes" : "no",
                                gpu_dmabuf == 1   ? "yes"
                                : gpu_dmabuf == 0 ? "no"
                                                  : "unknown");
        }
    }
}

static void tell_distances(struct gemmar_info *d)
{
    struct gemmar_info_report *r = &d->report;
    int pairs = 0;

    gemmar_info_section(r, "distances", "PCIe distance from GPU to NIC");
    for (int g = 0; g < d->gpus; g++) {
        for (int i = 0; i < d->ports; i++) {
            enum gemmar_pci_distance distance = gemmar_pci_distance(
                d->gpu[g].path, d->gpu[g].numa, d->port[i].path, d->port[i].numa);

            if (!d->port[i].used ||
                (i != 0 && strcmp(d->port[i - 1].device, d->port[i].device) == 0 &&
                 d->port[i - 1].used)) {
                continue; /* ports of one device are equally far */
            }
            pairs++;
            gemmar_info_row(r);
            gemmar_info_text(r, "gpu", "%s", d->gpu[g].bus);
            gemmar_info_text(r, "device", "%s", d->port[i].device);
            gemmar_info_text(r, "distance", "%s", gemmar_pci_distance_name(distance));
            if (distance == GEMMAR_PCI_UNSEEN) {
                gemmar_info_unknown(r, "direct_by_default");
            } else {
                gemmar_info_flag(r, "direct_by_default", distance <= GEMMAR_PCI_PXB);
            }
        }
    }
    if (pairs == 0) {
        gemmar_info_note(r, "No pair of a GPU and a port that is used.");
    } else {
        gemmar_info_note(r, "NCCL uses GPUDirect RDMA up to PXB unless NCCL_NET_GDR_LEVEL says "
                            "otherwise; NODE is PHB there. ?: a path is hidden.");
    }
}

void gemmar_info_gpudirect(struct gemmar_info *d)
{
    struct gemmar_info_report *r = &d->report;
    char text[1024];
    bool peer = find_peer_memory(d, text, sizeof(text));

    gemmar_info_section(r, "gpudirect", "GPUDirect RDMA");
    gemmar_info_flag(r, "peer_memory", peer);
    if (peer) {
        gemmar_info_text(r, "peer_memory_module", "%s", text);
    } else {
        gemmar_info_note(r, "No peer memory module (nvidia-peermem): dma-buf is the only way.");
    }
    tell_routes(d, peer);
    tell_distances(d);
}
