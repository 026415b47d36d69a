// SPDX-License-Identifier: Apache-2.0
#include "test/unit/plugin/fake_net.h"

#include <string.h>
#include <unistd.h>

struct fake_net fake;

static int called(const char *name, void *object)
{
    fake.call = name;
    fake.calls++;
    fake.object = object;
    return fake.result;
}

static int gives(int result, void **out, void *object)
{
    if (result == GEMMAR_NCCL_SUCCESS) {
        *out = object;
    }
    return result;
}

int gemmar_net_init(int version, const struct gemmar_net_config *config, gemmar_nccl_logger log,
                    gemmar_nccl_profiler profiler, void **out_context)
{
    int which = fake.inits++;

    fake.version = version;
    fake.has_config = config != NULL;
    fake.traffic_class = config ? config->traffic_class : -1;
    fake.logger = log;
    fake.profiler = profiler;
    (void)usleep(20000); /* room for a second init beside this one */
    return gives(called("init", NULL), out_context, &fake.contexts[which % 4]);
}

int gemmar_net_init_again(void *context)
{
    return called("init_again", context);
}

int gemmar_net_finalize(void *context)
{
    return called("finalize", context);
}

int gemmar_net_devices(int *out_count)
{
    *out_count = FAKE_DEVICES;
    return called("devices", NULL);
}

int gemmar_net_properties(int dev, struct gemmar_net_props_v12 *out)
{
    if (dev < 0 || dev >= FAKE_DEVICES) {
        return GEMMAR_NCCL_INVALID_ARGUMENT;
    }
    fake.dev = dev;
    if (fake.result == GEMMAR_NCCL_SUCCESS) {
        *out = fake.props;
    }
    return called("properties", NULL);
}

int gemmar_net_make_vdevice(int *out_dev, const struct gemmar_net_vprops_v12 *members)
{
    fake.members = *members;
    *out_dev = FAKE_DEVICES;
    return called("make_vdevice", NULL);
}

int gemmar_net_listen(void *context, int dev, void *handle, void **out_listen)
{
    fake.dev = dev;
    fake.handle = handle;
    return gives(called("listen", context), out_listen, &fake.comm);
}

int gemmar_net_connect(void *context, int dev, int traffic_class, void *handle, void **out_send)
{
    fake.dev = dev;
    fake.traffic_class = traffic_class;
    fake.handle = handle;
    return gives(called("connect", context), out_send, &fake.comm);
}

int gemmar_net_accept(void *listen, void **out_recv)
{
    return gives(called("accept", listen), out_recv, &fake.comm);
}

int gemmar_net_close_listen(void *listen)
{
    return called("close_listen", listen);
}

int gemmar_net_close_send(void *send)
{
    return called("close_send", send);
}

int gemmar_net_close_recv(void *recv)
{
    return called("close_recv", recv);
}

int gemmar_net_reg_mr(void *comm, void *data, size_t size, int type, void **out_mhandle)
{
    fake.data = data;
    fake.size = size;
    fake.type = type;
    return gives(called("reg_mr", comm), out_mhandle, &fake.registration);
}

int gemmar_net_reg_mr_dmabuf(void *comm, void *data, size_t size, int type, uint64_t offset, int fd,
                             void **out_mhandle)
{
    fake.data = data;
    fake.size = size;
    fake.type = type;
    fake.offset = offset;
    fake.fd = fd;
    return gives(called("reg_mr_dmabuf", comm), out_mhandle, &fake.registration);
}

int gemmar_net_dereg_mr(void *comm, void *mhandle)
{
    fake.mhandle = mhandle;
    return called("dereg_mr", comm);
}

int gemmar_net_isend(void *send, void *data, size_t size, int tag, void *mhandle, void *phandle,
                     void **out_request)
{
    fake.data = data;
    fake.size = size;
    fake.tag = tag;
    fake.mhandle = mhandle;
    fake.phandle = phandle;
    return gives(called("isend", send), out_request, &fake.request);
}

int gemmar_net_irecv(void *recv, int n, void **data, size_t *sizes, int *tags, void **mhandles,
                     void **phandles, void **out_request)
{
    fake.n = n;
    memcpy(fake.datas, data, (size_t)n * sizeof(*data));
    memcpy(fake.sizes, sizes, (size_t)n * sizeof(*sizes));
    memcpy(fake.tags, tags, (size_t)n * sizeof(*tags));
    memcpy(fake.mhandles, mhandles, (size_t)n * sizeof(*mhandles));
    fake.phandles = phandles;
    fake.request_in = *out_request;
    return gives(called("irecv", recv), out_request, &fake.request);
}

int gemmar_net_iflush(void *recv, int n, void **data, int *sizes, void **mhandles,
                      void **out_request)
{
    fake.n = n;
    memcpy(fake.datas, data, (size_t)n * sizeof(*data));
    fake.sizes[0] = (size_t)sizes[0];
    memcpy(fake.mhandles, mhandles, (size_t)n * sizeof(*mhandles));
    return gives(called("iflush", recv), out_request, &fake.request);
}

int gemmar_net_test(void *request, int *out_done, int *sizes)
{
    *out_done = 1;
    fake.out_sizes = sizes;
    return called("test", request);
}
