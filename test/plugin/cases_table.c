// SPDX-License-Identifier: Apache-2.0
// What NCCL sees before it connects: the table and the properties of the devices.
#include "test/plugin/cases.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/net_abi.h"

static void open_library(struct world *w, int api)
{
    const char *error;
    int absent;
    if (net_open(&w->net, w->o->library, api, &error, &absent)) {
        if (absent) {
            skip(w, error);
        }
        fail("%s", error);
    }
}

void case_table(struct world *w)
{
    open_library(w, w->o->api);
    const char *missing = net_missing(&w->net);
    CHECK(!missing, "%s is NULL", missing);
    CHECK(strcmp(w->net.name, w->net.reference ? "IB" : "Gemmar") == 0, "the name is %s",
          w->net.name);
    net_close(&w->net);
}

static void check_device(struct world *w, int dev)
{
    struct net_props p;
    must(net_properties(&w->net, dev, &p), "getProperties");
    CHECK(!p.unset, "device %d: %s was not written", dev, p.unset);
    CHECK(p.name && p.name[0], "device %d has no name", dev);
    CHECK(p.speed > 0 && p.port > 0, "device %d: speed %d port %d", dev, p.speed, p.port);
    CHECK(p.ptr_support & GEMMAR_NET_PTR_HOST, "device %d takes no host memory", dev);
    CHECK(p.max_recvs >= 1 && p.max_recvs <= NET_MAX_RECVS && p.max_comms > 0,
          "device %d: maxRecvs %d maxComms %d", dev, p.max_recvs, p.max_comms);
    CHECK(p.latency >= 0, "device %d: latency %f", dev, (double)p.latency);
    CHECK(p.device_type == GEMMAR_NET_DEVICE_HOST, "device %d: offload type %d", dev,
          p.device_type);
    CHECK(p.vdevs == 1 && p.vdev[0] == dev, "device %d: %d members, the first is %d", dev, p.vdevs,
          p.vdev[0]);
    CHECK(p.max_p2p_bytes > 0 && p.max_p2p_bytes <= GEMMAR_NET_MAX_SIZE, "device %d: maxP2pBytes",
          dev);
    if (p.pci_path) {
        char *real = realpath(p.pci_path, NULL);
        CHECK(real, "device %d: no such path: %s", dev, p.pci_path);
        free(real);
    }
    note("device %d: %s port %d speed %d ptrSupport %d regIsGlobal %d maxRecvs %d", dev, p.name,
         p.port, p.speed, p.ptr_support, p.reg_is_global, p.max_recvs);
}

// L-01: every version its own layout. D-03: a PCI path that exists, or none.
void case_properties(struct world *w)
{
    static const int bad[] = {-1, INT_MIN, INT_MAX};
    struct net_props p;
    int again = 0;
    for (int dev = 0; dev < w->devices; dev++) {
        check_device(w, dev);
    }
    must(net_devices(&w->net, &again), "devices");
    CHECK(again == w->devices, "%d devices, then %d", w->devices, again);
    for (unsigned i = 0; i <= sizeof bad / sizeof *bad; i++) {
        int dev = i ? bad[i - 1] : w->devices;
        if (w->net.reference && dev != w->devices) {
            continue; // NCCL 2.28.9 takes them as indices
        }
        CHECK(net_properties(&w->net, dev, &p) != 0, "device %d has properties", dev);
        CHECK(p.unset, "device %d: an error, but properties were written", dev);
    }
}
