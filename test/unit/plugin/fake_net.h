// SPDX-License-Identifier: Apache-2.0
// A stand-in for the functions of plugin/net.h: keeps the arguments of the last call, and answers
// what the test has set.
#ifndef FAKE_NET_H
#define FAKE_NET_H

#include "plugin/net.h"

#define FAKE_DEVICES 3
#define FAKE_RECVS   8

struct fake_net {
    /* set by the test */
    int result; /* of every call */
    struct gemmar_net_props_v12 props;

    /* arguments */
    const char *call; /* name of the last one */
    int calls;
    int inits, version, dev, traffic_class, type, fd, n, tag, has_config;
    gemmar_nccl_logger logger;
    gemmar_nccl_profiler profiler;
    void *object; /* context, comm or request */
    void *handle, *data, *mhandle, *phandle, *request_in;
    size_t size;
    uint64_t offset;
    void *datas[FAKE_RECVS], *mhandles[FAKE_RECVS], **phandles;
    size_t sizes[FAKE_RECVS];
    int tags[FAKE_RECVS];
    int *out_sizes;
    struct gemmar_net_vprops_v12 members;

    /* results: the addresses serve as objects, contexts one for each init */
    int contexts[4], comm, registration, request;
};
extern struct fake_net fake;

#endif
